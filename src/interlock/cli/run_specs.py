"""From what was typed to a run that can be asked for, checked before anything is stored."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec
import typer

from interlock.errors import CannotLoad, InvalidArguments
from interlock.remote.addresses import is_server
from interlock.suggestions import nearest
from interlock.systems.runs.planning.flow import FlowFunction
from interlock.systems.runs.planning.git import FOLDER, run_git
from interlock.systems.runs.planning.planners import spec_of_file
from interlock.wire.runs import Plan, RunSpec, Source
from interlock.worker.imports import import_named, prints_to_stderr

STDIN = "-"
GIT_S = 10.0
MOST_PATHS = 100_000
"""So many characters of changed paths go along; of more, all count as changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
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


def spec_for(asked: Asked, url: str) -> RunSpec:
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


def _evaluated(asked: Asked, source: Source, inputs: dict[str, str]) -> RunSpec:
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


async def source_here(asked: Asked, url: str) -> Source:
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
