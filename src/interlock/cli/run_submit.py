"""Submit, watch, approve and decline runs."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec
import typer

from interlock.cli import nouns, output, project, run_views, watch
from interlock.cli.connection import actor, connected, run_connected
from interlock.cli.nouns import has_filter
from interlock.cli.output import iso, print_line, print_struct
from interlock.cli.run_views import RunChange, whole_run_id
from interlock.cli.watch import CANCELED, COMPLETED, FAILED, NOT_IN_TIME
from interlock.errors import CannotLoad, InvalidArguments
from interlock.lifecycles.run import RunState
from interlock.remote import is_server
from interlock.remote.reach import Reach
from interlock.systems.runs.plan_validation import check_plan
from interlock.systems.runs.workflows.flow import FlowFunction
from interlock.systems.runs.workflows.git import FOLDER, run_git
from interlock.systems.runs.workflows.workflow import plan_of_text, spec_of_file
from interlock.text import nearest
from interlock.wire.runs import Plan, RerunPreview, RunSpec, RunView, Source, Which
from interlock.worker.imports import import_named, prints_to_stderr

STDIN = "-"
GIT_S = 10.0
MOST_PATHS = 100_000
"""Maximum characters of changed paths; beyond that, all paths count as changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The command line."""

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


def spec_for(options: RunOptions, url: str) -> RunSpec:
    """Return the run to submit; raise an error if the options are invalid."""
    given = [name for name in (options.flow, options.workflow, options.plan) if name is not None]
    if len(given) > 1:
        raise InvalidArguments(
            "Several sources given: a run has one flow, workflow file or plan.", todo="Give one of them."
        )
    source, inputs = asyncio.run(source_here(options, url)), inputs_in(options.inputs)
    spec = _evaluated(options, source, inputs)
    changes = {
        "workflow": options.name,
        "concurrency_group": options.group,
        "labels": options.labels or None,
        "priority": options.priority or None,
    }
    return msgspec.structs.replace(
        spec, **{key: value for key, value in changes.items() if value is not None}
    )


def _evaluated(options: RunOptions, source: Source, inputs: dict[str, str]) -> RunSpec:
    if options.flow is not None:
        found = flow_named(options.flow)
        with prints_to_stderr():
            return found.spec(source, **inputs)
    if options.plan is not None:
        if inputs:
            raise InvalidArguments("A plan takes no inputs.", todo="Leave out --input.")
        return RunSpec(plan=_plan_in(options.plan), source=source)
    path = options.workflow or _only_workflow()
    return spec_of_file(_text_of(path), path.name, source, inputs)


def inputs_in(words: tuple[str, ...]) -> dict[str, str]:
    """Return the inputs of the form NAME=VALUE."""
    given: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{word!r} is not NAME=VALUE", param_hint="--input")
        given[name] = value
    return given


def flow_named(text: str) -> FlowFunction:
    """Return the flow at `module:function`."""
    module_name, colon, name = text.partition(":")
    if not colon or not name:
        raise CannotLoad(
            f"{text!r} is not a flow, which is written MODULE:FUNCTION.",
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


async def source_here(options: RunOptions, url: str) -> Source:
    """Return the source: from the options, or from the git repository of the current folder."""
    if options.repository is not None or options.sha is not None:
        return Source(
            repository=options.repository or "",
            ref=options.ref or "",
            sha=options.sha or "",
            base_sha=options.base or "",
        )
    top = await _git("rev-parse", "--show-toplevel")
    sha = await _git("rev-parse", "--verify", "HEAD") if top else ""
    if not sha:
        return Source(ref=options.ref or "")
    if await _git("status", "--porcelain", "--untracked-files=no"):
        typer.echo("Uncommitted changes are not part of the run.", err=True)
    # Workers of a store may share this machine; those of a server need an address that they can reach.
    origin = await _git("remote", "get-url", "origin") if is_server(url) else ""
    base = await _git("rev-parse", "--verify", f"{options.base}^{{commit}}") if options.base else ""
    return Source(
        repository=origin or top,
        ref=options.ref or await _git("symbolic-ref", "--quiet", "HEAD"),
        sha=sha,
        base_sha=base,
        changed_paths=await _changed(base) if base else None,
        title=await _git("log", "-1", "--format=%s"),
    )


async def _changed(base: str) -> tuple[str, ...] | None:
    names = await _git("diff", "--name-only", "--no-renames", "-z", f"{base}...HEAD", "--")
    return tuple(path for path in names.split("\0") if path) if len(names) <= MOST_PATHS else None


async def _git(*words: str) -> str:
    """Return the output of git; empty when it fails, or is not installed."""
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
            f"There is no workflow file in {FOLDER}, and no other source was given.",
            todo="Name a file with --workflow, a plan with --plan, or a flow as MODULE:FUNCTION.",
        )
    raise InvalidArguments(
        f"There are several workflow files in {FOLDER}.",
        allowed=[str(path) for path in found],
        todo=f"Name one of them: --workflow {found[0]}",
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
            f"{'Standard input' if name == STDIN else name} is not a plan: {error}.",
            todo='Write {"jobs": [{"name": "lint", "task": "interlock.shell", "input": {"run": "make"}}]}',
            facts={"file": name},
        ) from None


_CODES = {
    RunState.SUCCESS: COMPLETED,
    RunState.FAILED: FAILED,
    RunState.TIMEOUT: FAILED,
    RunState.CANCELED: CANCELED,
}


class RunScreen(Protocol):
    """A display for changes of a run."""

    async def show(self, view: RunView, changes: list[RunChange]) -> None:
        """Show the current run."""
        ...


def watch_run(store: str | None, text: str, timeout_s: float | None, *, as_json: bool) -> int:
    """Follow a run to its outcome; return the exit code."""

    async def work(port: Reach) -> int:
        return await follow(port, await whole_run_id(port, text), timeout_s, as_json=as_json)

    return watch.until_interrupted(store, work, "Stopped watching; the run continues.")


async def follow(port: Reach, run_id: str, timeout_s: float | None, *, as_json: bool) -> int:
    """Show the changes of a run until its outcome is decided; return the exit code."""
    last: RunView | None = None
    late = f"Not ended in time: {run_id}. See `interlock run explain {run_id}`."
    with _screen(port, as_json=as_json) as screen:

        async def show(view: RunView) -> None:
            nonlocal last
            await screen.show(view, list(changes_between(last, view)))
            last = view

        views = watch.looks(port, lambda: port.here.runs.view(run_id), _is_over)
        return await watch.follow_one(views, show, exit_code, timeout_s, late)


def exit_code(view: RunView) -> int:
    """Return the exit code for the outcome of a run."""
    return NOT_IN_TIME if view.outcome is None else _CODES.get(RunState(view.outcome), FAILED)


def _is_over(view: RunView) -> bool:
    """Return whether the outcome is decided, and the jobs that it stops have stopped."""
    return view.outcome is not None and not any(view.tally.get(s) for s in ("RUNNING", "STOPPING"))


def changes_between(before: RunView | None, after: RunView) -> Iterator[RunChange]:
    """Yield the changes of state; without a previous view, those of all jobs that have started."""
    known = {job.name: job.state for job in before.jobs} if before is not None else {}
    for job in after.jobs:
        was = known.get(job.name, "" if before is None else "WAITING")
        if job.state != was and not (before is None and job.state == "WAITING"):
            at = job.completed_at or job.started_at or after.updated_at
            failure = job.failure.error if job.failure is not None else ""
            yield RunChange(at, job.name, was, job.state, failure or job.reason)
    if before is None or before.state != after.state:
        reason = after.error or after.reason
        yield RunChange(after.updated_at, "", before.state if before else "", after.state, reason)


def _screen(port: Reach, *, as_json: bool) -> AbstractContextManager[RunScreen]:
    def live() -> AbstractContextManager[RunScreen]:
        from interlock.cli.live import LiveGraph  # a pipe needs no rich

        return LiveGraph(port.now, shutil.get_terminal_size().columns)

    return watch.screen(as_json=as_json, json_lines=RunJsonLines, lines=RunLines, live=live)


class RunLines:
    """A line for each change, for a pipe."""

    async def show(self, view: RunView, changes: list[RunChange]) -> None:
        """Print one line for each change, and flush it."""
        for change in changes:
            who = change.what or view.id
            output.print_row((iso(change.at), who, change.before, change.after, change.says))


class RunJsonLines:
    """A line of JSON for each change, and one for the run when it has ended."""

    async def show(self, view: RunView, changes: list[RunChange]) -> None:
        """Print one line for each change, and flush it."""
        for change in changes:
            line = {"at": change.at, "job": change.what, "from": change.before, "to": change.after}
            print_line({"change": {**line, "says": change.says}})
        if _is_over(view):
            print_line({"run": view})


def submit(
    store: str | None,
    options: RunOptions,
    request_id: str | None,
    *,
    wait: bool,
    dry_run: bool,
    timeout_s: float | None,
    as_json: bool,
) -> int:
    """Submit a run and print its id; return the exit code."""
    here = project.load(store)
    spec = spec_for(options, here.url)
    if dry_run:
        plan = spec.plan if spec.plan is not None else plan_of_text(spec)
        check_plan(plan, here.settings)
        _show_plan(plan, as_json=as_json)
        return 0

    async def work() -> int:
        async with connected(here) as port:
            view: RunView = await port.here.runs.submit(spec, request_id=request_id, actor=actor())
            if not as_json:
                print(view.id, flush=True)
            if wait:
                return await follow(port, view.id, timeout_s, as_json=as_json)
            if as_json:
                print_struct(view)
            return 0

    try:
        return asyncio.run(work())
    except KeyboardInterrupt:
        if wait:
            typer.echo("Stopped watching; the submitted run continues.", err=True)
        raise


def _show_plan(plan: Plan, *, as_json: bool) -> None:
    if as_json:
        print_struct(plan)
    else:
        output.print_sheets(run_views.plan_sheets(plan))


def preview(store: str | None, which: Which, job: str, words: Sequence[str], *, as_json: bool) -> None:
    """Print which jobs of one run a rerun would execute, and which would be kept."""
    if has_filter(words) or len(words) != 1:
        raise typer.BadParameter("lists the jobs of one run: give its id", param_hint="--preview")

    async def work(port: Reach) -> RerunPreview:
        return await port.here.runs.preview(await whole_run_id(port, words[0]), which, job=job)

    found = run_connected(store, work)
    if as_json:
        print_struct(found)
        return
    rows = [(name, "again") for name in found.again] + [(name, "kept") for name in found.kept]
    output.print_sheets([output.Sheet("job", "", ("job", "would be"), rows)])
    if found.planned_anew:
        typer.echo("The run has no plan: its jobs are known once the planner has made one.", err=True)


def decide(
    store: str | None, verb: str, text: str, request_id: str | None, *, as_json: bool, **details: str
) -> None:
    """Approve or decline a run, and print its state."""

    async def work(port: Reach) -> RunView:
        change: Callable[..., Awaitable[RunView]] = getattr(port.here.runs, verb)
        return await change(await whole_run_id(port, text), request_id=request_id, actor=actor(), **details)

    nouns.act(store, work, lambda view, _: [run_views.outcome_line(view)], as_json=as_json)
