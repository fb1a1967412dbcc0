"""Submit, watch, cancel, rerun, approve and decline runs."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

import msgspec
import typer

from interlock.cli import output, project, run_views
from interlock.cli.bulk_actions import BulkAction, part_of
from interlock.cli.connection import actor, ask, connected
from interlock.cli.job_watch import Trouble
from interlock.cli.journal import CANCELED, COMPLETED, FAILED, NOT_IN_TIME, POLL_S, wait_for_wakeup
from interlock.cli.output import iso, print_line, print_struct
from interlock.cli.run_views import chosen_runs, filter_in, whole_run_id
from interlock.errors import CannotLoad, InvalidArguments, StoreUnavailable
from interlock.lifecycles import run
from interlock.lifecycles.run import RunState
from interlock.remote import is_server
from interlock.remote.interfaces import Reach, RunsApi, Services, Which
from interlock.systems.orchestrator.waiters import waker
from interlock.systems.runs.plan_validation import check_plan
from interlock.systems.runs.planning.flow import FlowFunction
from interlock.systems.runs.planning.git import FOLDER, run_git
from interlock.systems.runs.planning.workflow import plan_of_text, spec_of_file
from interlock.text import harmless, nearest
from interlock.wire.runs import Plan, RerunPreview, RunSpec, RunView, Source
from interlock.worker.imports import import_named, prints_to_stderr

STDIN = "-"
GIT_S = 10.0
MOST_PATHS = 100_000
"""So many characters of changed paths go along; of more, all count as changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What was typed."""

    flow: str | None = None
    workflow: Path | None = None
    plan: str | None = None
    inputs: tuple[str, ...] = ()
    repository: str | None = None
    ref: str | None = None
    sha: str | None = None
    base: str | None = None
    name: str | None = None
    group: str | None = None
    labels: tuple[str, ...] = ()
    priority: int = 0


def spec_for(asked: RunOptions, url: str) -> RunSpec:
    """The run that was asked for; what is wrong with it is raised."""
    given = [name for name in (asked.flow, asked.workflow, asked.plan) if name is not None]
    if len(given) > 1:
        raise InvalidArguments(
            "A run is of one thing: a flow, a workflow file or a plan.", todo="Give one of them."
        )
    source, inputs = asyncio.run(source_here(asked, url)), inputs_in(asked.inputs)
    spec = _evaluated(asked, source, inputs)
    changes = {
        "workflow": asked.name,
        "concurrency_group": asked.group,
        "labels": asked.labels or None,
        "priority": asked.priority or None,
    }
    return msgspec.structs.replace(
        spec, **{key: value for key, value in changes.items() if value is not None}
    )


def _evaluated(asked: RunOptions, source: Source, inputs: dict[str, str]) -> RunSpec:
    if asked.flow is not None:
        found = flow_named(asked.flow)
        with prints_to_stderr():
            return found.spec(source, **inputs)
    if asked.plan is not None:
        if inputs:
            raise InvalidArguments("A plan takes no inputs.", todo="Leave out --input.")
        return RunSpec(plan=_plan_in(asked.plan), source=source)
    path = asked.workflow or _only_workflow()
    return spec_of_file(_text_of(path), path.name, source, inputs)


def inputs_in(words: tuple[str, ...]) -> dict[str, str]:
    """Inputs as they were typed: NAME=VALUE."""
    given: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{word!r} is not NAME=VALUE", param_hint="--input")
        given[name] = value
    return given


def flow_named(text: str) -> FlowFunction:
    """The flow at `module:function`."""
    module_name, colon, name = text.partition(":")
    if not colon or not name:
        raise CannotLoad(
            f"{text!r} is no flow, which is written MODULE:FUNCTION.",
            todo="Name one, or a workflow file with --workflow.",
            facts={"flow": text},
        )
    module = import_named(module_name)
    found = getattr(module, name, None)
    if isinstance(found, FlowFunction):
        return found
    known = tuple(key for key, value in vars(module).items() if isinstance(value, FlowFunction))
    guess = nearest(name, known)
    raise CannotLoad(
        f"There is no flow {name} in {module_name}." + (f" Did you mean {guess}?" if guess else ""),
        allowed=known,
        todo="Decorate a function of it with @flow.",
        facts={"flow": text},
    )


async def source_here(asked: RunOptions, url: str) -> Source:
    """What is evaluated: as was said, and otherwise the git repository that somebody is in."""
    if asked.repository is not None or asked.sha is not None:
        return Source(
            repository=asked.repository or "",
            ref=asked.ref or "",
            sha=asked.sha or "",
            base_sha=asked.base or "",
        )
    top = await _git("rev-parse", "--show-toplevel")
    sha = await _git("rev-parse", "--verify", "HEAD") if top else ""
    if not sha:
        return Source(ref=asked.ref or "")
    if await _git("status", "--porcelain", "--untracked-files=no"):
        typer.echo("What is not committed is not part of the run.", err=True)
    # Workers of a store may share this machine; those of a server need an address that they can reach.
    origin = await _git("remote", "get-url", "origin") if is_server(url) else ""
    base = await _git("rev-parse", "--verify", f"{asked.base}^{{commit}}") if asked.base else ""
    return Source(
        repository=origin or top,
        ref=asked.ref or await _git("symbolic-ref", "--quiet", "HEAD"),
        sha=sha,
        base_sha=base,
        changed_paths=await _changed(base) if base else None,
        title=await _git("log", "-1", "--format=%s"),
    )


async def _changed(base: str) -> tuple[str, ...] | None:
    names = await _git("diff", "--name-only", "--no-renames", "-z", f"{base}...HEAD", "--")
    return tuple(path for path in names.split("\0") if path) if len(names) <= MOST_PATHS else None


async def _git(*words: str) -> str:
    """What git says here; empty when it says no, or is not there."""
    try:
        code, output, _ = await run_git(words, Path.cwd(), GIT_S)
    except OSError:
        return ""
    return "" if code else output.decode(errors="replace").strip("\n")


def _only_workflow() -> Path:
    folder = Path(FOLDER)
    found = sorted(path for path in folder.glob("*") if path.suffix in (".yml", ".yaml"))
    if len(found) == 1:
        return found[0]
    if not found:
        raise InvalidArguments(
            f"There is no workflow file in {FOLDER}, and nobody says what else to evaluate.",
            todo="Name a file with --workflow, a plan with --plan, or a flow as MODULE:FUNCTION.",
        )
    raise InvalidArguments(
        f"There are several workflow files in {FOLDER}.",
        allowed=[str(path) for path in found],
        todo=f"Say which one: --workflow {found[0]}",
    )


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise CannotLoad(
            f"The file {path} cannot be read: {reason}.", todo="Give another one.", facts={"file": str(path)}
        ) from None


def _plan_in(name: str) -> Plan:
    text = sys.stdin.buffer.read() if name == STDIN else _text_of(Path(name)).encode()
    try:
        return msgspec.json.decode(text, type=Plan)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArguments(
            f"{'Standard input' if name == STDIN else name} is no plan: {error}.",
            todo='Write {"jobs": [{"name": "lint", "task": "interlock.shell", "input": {"run": "make"}}]}',
            facts={"file": name},
        ) from None


LEAST_PAUSE_S = 0.1
"""However much news there is, so long is it gathered."""
_CODES = {
    RunState.SUCCESS: COMPLETED,
    RunState.FAILED: FAILED,
    RunState.TIMEOUT: FAILED,
    RunState.CANCELED: CANCELED,
}


@dataclass(frozen=True, slots=True)
class Change:
    """Something of the run is in another state than before."""

    at: datetime
    what: str
    """The name of a job, or empty for the run itself."""
    before: str
    after: str
    says: str = ""


class Screen(Protocol):
    """Where news is shown."""

    async def show(self, view: RunView, changes: list[Change]) -> None:
        """Show how it is now."""
        ...


def watch(store: str | None, text: str, timeout_s: float | None, *, as_json: bool) -> int:
    """Follow a run to its outcome; the answer is the exit code."""

    async def work(port: Reach) -> int:
        run_id = await whole_run_id(port.here.runs, text)
        return await follow(port, run_id, timeout_s, as_json=as_json)

    try:
        return ask(store, work)
    except KeyboardInterrupt:
        typer.echo("Stopped watching; whatever runs goes on.", err=True)
        raise


async def follow(port: Reach, run_id: str, timeout_s: float | None, *, as_json: bool) -> int:
    """Show what happens to a run until its outcome is decided; the answer is the exit code."""
    last: RunView | None = None
    with _screen(port, as_json=as_json) as screen:
        try:
            async with asyncio.timeout(timeout_s), aclosing(news_of(port, run_id)) as news:
                async for view in news:
                    await screen.show(view, list(changes_between(last, view)))
                    last = view
        except TimeoutError:
            typer.echo(f"Not ended in time: {run_id}. See `interlock run explain {run_id}`.", err=True)
            return NOT_IN_TIME
    return exit_code(last)


def exit_code(view: RunView | None) -> int:
    """What the outcome of a run means to a shell."""
    if view is None or view.outcome is None:
        return NOT_IN_TIME
    return _CODES.get(RunState(view.outcome), FAILED)


async def news_of(port: Reach, run_id: str) -> AsyncGenerator[RunView, None]:
    """The run whenever something may have happened to it, until its outcome is decided."""
    called, trouble = asyncio.Event(), Trouble()
    stop = port.here.store.subscribe(waker(called))
    loop, swept_at = asyncio.get_running_loop(), float("-inf")
    try:
        while True:
            called.clear()
            try:
                view = await port.here.runs.view(run_id)
                yield view
                if view.outcome is not None and not _still_stopping(view):
                    return
                if loop.time() - swept_at >= POLL_S:
                    await port.recover()
                    swept_at = loop.time()
            except StoreUnavailable as error:
                trouble(error)  # it may come back; whoever cannot wait has a timeout
            await wait_for_wakeup(called, POLL_S)
            await asyncio.sleep(LEAST_PAUSE_S)
    finally:
        stop()


def _still_stopping(view: RunView) -> bool:
    """What is stopped because the outcome is decided is shown until it is."""
    return any(view.tally.get(state) for state in ("RUNNING", "STOPPING"))


def changes_between(before: RunView | None, after: RunView) -> Iterator[Change]:
    """What is in another state; at first, everything that has begun."""
    known = {job.name: job.state for job in before.jobs} if before is not None else {}
    for job in after.jobs:
        was = known.get(job.name, "" if before is None else "WAITING")
        if job.state != was and not (before is None and job.state == "WAITING"):
            at = job.completed_at or job.started_at or after.updated_at
            failure = job.failure.error if job.failure is not None else ""
            yield Change(at, job.name, was, job.state, failure or job.reason)
    if before is None or before.state != after.state:
        says = after.error or after.reason
        yield Change(after.updated_at, "", before.state if before else "", after.state, says)


def _screen(port: Reach, *, as_json: bool) -> AbstractContextManager[Screen]:
    if as_json:
        return nullcontext(JsonLines())
    if not output.on_terminal():
        return nullcontext(Transitions())
    from interlock.cli.live import LiveGraph  # a pipe need not wait for rich

    return LiveGraph(port.now, shutil.get_terminal_size().columns)


class Transitions:
    """A line for each change, for a pipe."""

    async def show(self, view: RunView, changes: list[Change]) -> None:
        """One line each, there at once."""
        for change in changes:
            who = change.what or view.id
            output.print_row((iso(change.at), who, change.before, change.after, change.says))


class JsonLines:
    """A line of JSON for each change, and one for the run when it has ended."""

    async def show(self, view: RunView, changes: list[Change]) -> None:
        """One line each, there at once."""
        for change in changes:
            told = {"at": change.at, "job": change.what, "from": change.before, "to": change.after}
            print_line({"change": {**told, "says": change.says}})
        if view.outcome is not None and not _still_stopping(view):
            print_line({"run": view})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """What to evaluate, and what to do then."""

    asked: RunOptions
    request_id: str | None
    wait: bool
    dry_run: bool
    patience_s: float | None


def submit(store: str | None, ordered: Ordered, *, as_json: bool) -> int:
    """Ask for the run; the answer is the exit code."""
    here = project.load(store)
    spec = spec_for(ordered.asked, here.url)
    if ordered.dry_run:
        plan = spec.plan if spec.plan is not None else plan_of_text(spec)
        check_plan(plan, here.settings)
        _show_plan(plan, as_json=as_json)
        return 0
    try:
        return asyncio.run(_submitted(here, spec, ordered, as_json=as_json))
    except KeyboardInterrupt:
        if ordered.wait:
            typer.echo("Stopped watching; whatever was submitted goes on.", err=True)
        raise


async def _submitted(here: project.Project, spec: RunSpec, ordered: Ordered, *, as_json: bool) -> int:
    async with connected(here) as port:
        view: RunView = await port.here.runs.submit(spec, request_id=ordered.request_id, actor=actor())
        if not as_json:
            print(view.id, flush=True)
        if ordered.wait:
            return await follow(port, view.id, ordered.patience_s, as_json=as_json)
        if as_json:
            print_struct(view)
        return 0


def _show_plan(plan: Plan, *, as_json: bool) -> None:
    if as_json:
        print_struct(plan)
    else:
        output.print_sheets(run_views.plan_sheets(plan))


class Order(Protocol):
    """What shall be done with each run."""

    @property
    def verb(self) -> str:
        """What it is called."""
        ...

    @property
    def states(self) -> Sequence[str]:
        """In which states it can be done; a filter is held to them."""
        ...

    async def carry_out(self, runs: RunsApi, run_id: str) -> RunView:
        """Do it."""
        ...

    def line(self, view: RunView) -> str:
        """What is said about it in a pipe."""
        ...


@dataclass(frozen=True, slots=True)
class Cancel:
    """Ask it to stop."""

    reason: str
    request_id: str | None
    verb: str = "cancel"
    states: Sequence[str] = tuple(str(state) for state in run.RunState if state not in run.SETTLED)

    async def carry_out(self, runs: RunsApi, run_id: str) -> RunView:
        """Ask it to stop."""
        name = part_of(self.request_id, run_id)
        return await runs.cancel(run_id, reason=self.reason, request_id=name, actor=actor())

    def line(self, view: RunView) -> str:
        """Its state: it may still be at it."""
        return "\t".join((view.id, view.state, run_views.said(view)))


@dataclass(frozen=True, slots=True)
class Rerun:
    """Do it again."""

    which: Which
    job: str
    request_id: str | None
    verb: str = "rerun"
    states: Sequence[str] = tuple(str(state) for state in run.SETTLED)

    async def carry_out(self, runs: RunsApi, run_id: str) -> RunView:
        """Make the new run."""
        name = part_of(self.request_id, run_id)
        return await runs.rerun(run_id, self.which, job=self.job, request_id=name, actor=actor())

    def line(self, view: RunView) -> str:
        """The new id, and nothing else, so that it can be used."""
        return view.id


def carry_out(
    store: str | None, order: Order, words: Sequence[str], yes: bool, dry_run: bool, as_json: bool
) -> int:
    """Do it with all runs that are meant, one after the other; the answer is the exit code."""
    by_filter = filter_in(words) is not None

    async def choose(port: Reach) -> list[RunView]:
        return await chosen_runs(port, words, among=order.states if by_filter else ())

    async def act(place: Services, run_id: str) -> RunView:
        return await order.carry_out(place.runs, run_id)

    many = BulkAction("run", order.verb, by_filter, choose, act, order.line, run_views.list_sheet, at_once=1)
    return many.carry_out(store, yes=yes, dry_run=dry_run, as_json=as_json)


def preview(store: str | None, order: Rerun, words: Sequence[str], *, as_json: bool) -> None:
    """Print which jobs of one run a rerun would execute, and which would be kept."""
    if filter_in(words) is not None or len(words) != 1:
        raise typer.BadParameter("names the jobs of one run: give its id", param_hint="--preview")

    async def work(port: Reach) -> RerunPreview:
        run_id = await whole_run_id(port.here.runs, words[0])
        return await port.here.runs.preview(run_id, order.which, job=order.job)

    found = ask(store, work)
    if as_json:
        print_struct(found)
        return
    rows = [(name, "again") for name in found.again] + [(name, "kept") for name in found.kept]
    output.print_sheets([output.Sheet("job", "", ("job", "would be"), rows)])
    if found.planned_anew:
        typer.echo("The run has no plan: the planner makes one, and then the jobs are known.", err=True)


def approve(store: str | None, text: str, comment: str, request_id: str | None, *, as_json: bool) -> None:
    """Approve a run, and print how it stands."""

    async def work(port: Reach) -> RunView:
        runs = port.here.runs
        run_id = await whole_run_id(runs, text)
        return await runs.approve(run_id, comment=comment, request_id=request_id, actor=actor())

    _print(ask(store, work), as_json=as_json)


def decline(store: str | None, text: str, reason: str, request_id: str | None, *, as_json: bool) -> None:
    """Decline a run, and print how it stands."""

    async def work(port: Reach) -> RunView:
        runs = port.here.runs
        run_id = await whole_run_id(runs, text)
        return await runs.decline(run_id, reason=reason, request_id=request_id, actor=actor())

    _print(ask(store, work), as_json=as_json)


def _print(view: RunView, *, as_json: bool) -> None:
    if as_json:
        print_struct(view)
    else:
        typer.echo(harmless("\t".join((view.id, view.state, run_views.said(view)))))
