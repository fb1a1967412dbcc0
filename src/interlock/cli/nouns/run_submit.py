"""Command `run submit`: read a flow, a workflow file or a plan, and submit the run."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import msgspec
import typer

from interlock.cli import output, project
from interlock.cli.connection import actor, connected
from interlock.cli.nouns import run_views
from interlock.cli.output import print_struct
from interlock.errors import CannotLoad, InvalidArguments
from interlock.remote import is_server
from interlock.systems.runs.plan_validation import check_plan
from interlock.systems.runs.workflows.flow import FlowFunction
from interlock.systems.runs.workflows.git import FOLDER, run_git
from interlock.systems.runs.workflows.workflow import plan_of_text, spec_of_file
from interlock.text import nearest
from interlock.wire.runs import Plan, RunSpec, RunView, Source
from interlock.worker.imports import import_named, prints_to_stderr

Follow: TypeAlias = Callable[..., Awaitable[int]]
"""Shows a run until its outcome is decided, and returns the exit code."""

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
    """Return the source: from the options, or from the git repository here."""
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


def submit(
    store: str | None,
    options: RunOptions,
    request_id: str | None,
    *,
    follow: Follow | None,
    dry_run: bool,
    timeout_s: float | None,
    as_json: bool,
) -> int:
    """Submit a run, print its id, and `follow` it; return the exit code."""
    here = project.load(store)
    spec = spec_for(options, here.url)
    if dry_run:
        plan = spec.plan if spec.plan is not None else plan_of_text(spec)
        check_plan(plan, here.settings)
        _show_plan(plan, as_json=as_json)
        return 0

    async def work() -> int:
        async with connected(here) as port:
            view: RunView = await port.services.runs.submit(spec, request_id=request_id, actor=actor())
            if not as_json:
                print(view.id, flush=True)
            if follow is not None:
                return await follow(port, view.id, timeout_s, as_json=as_json)
            if as_json:
                print_struct(view)
            return 0

    try:
        return asyncio.run(work())
    except KeyboardInterrupt:
        if follow is not None:
            typer.echo("Stopped watching; the submitted run continues.", err=True)
        raise


def _show_plan(plan: Plan, *, as_json: bool) -> None:
    if as_json:
        print_struct(plan)
    else:
        output.print_sheets(run_views.plan_sheets(plan))
