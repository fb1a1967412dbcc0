"""Command `interlock submit`: build job specs from arguments, and validate them before any is stored."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import typer

from interlock.cli import project
from interlock.cli.connection import actor, connected
from interlock.cli.nouns import job_watch
from interlock.cli.nouns.job_views import whole_id
from interlock.cli.options import parse_seconds
from interlock.cli.output import print_line, print_struct
from interlock.cli.project import Project
from interlock.errors import CannotLoad, InterlockError, InvalidArguments, UnknownTask
from interlock.remote.interfaces import JobsApi
from interlock.remote.service_connection import ServiceConnection
from interlock.systems.orchestrator.dependencies import named_in
from interlock.systems.orchestrator.jobs import BULK
from interlock.systems.orchestrator.submission import check_size, check_spec
from interlock.wire.jobs import After, JobSpec, JobView, Unique
from interlock.worker.codec import decoding_error
from interlock.worker.imports import import_named
from interlock.worker.middleware import Chain, load_middleware
from interlock.worker.postponement import is_duration
from interlock.worker.tasks import Registry, Task, load_tasks

MOST_FILES = 200
SHELL_NAME = "interlock.shell"
"""The task that every worker has."""


class TaskNames:
    """Tasks by the names that users type, each looked up once."""

    def __init__(self, module: str | None) -> None:
        self._module = module
        self._registry: Registry | None = None
        self._known: dict[str, Task[..., Any]] = {}

    def find(self, name: str) -> Task[..., Any]:
        """Return the task of this name."""
        if name not in self._known:
            self._known[name] = self._found(name)
        return self._known[name]

    def _found(self, name: str) -> Task[..., Any]:
        found = _shell() if name == SHELL_NAME else self._registered(name) or _in_module(name)
        if found is None:
            raise _unknown(name, self._registry)
        return found

    def _registered(self, name: str) -> Task[..., Any] | None:
        if self._module is None:
            return None
        registry = self._registry = self._registry or load_tasks(self._module)
        names = [known for known in registry.names() if known == name or known.endswith(f".{name}")]
        if name in registry:
            return registry.get(name)
        return registry.get(names[0]) if len(names) == 1 else None


def _shell() -> Task[..., Any]:
    from interlock.worker.shell import SHELL  # its imports are those of a worker

    return SHELL


def _in_module(name: str) -> Task[..., Any] | None:
    """Return the task `module:function` or `module.function`, or None."""
    module_name, separator, path = name.partition(":") if ":" in name else name.rpartition(".")
    if not (separator and module_name and path):
        return None
    try:
        module = import_named(module_name)
    except CannotLoad as error:
        if ":" not in name and isinstance(error.__cause__, ModuleNotFoundError):
            return None
        raise
    thing: object = module
    for part in path.split("."):
        thing = getattr(thing, part, None)
    if isinstance(thing, Task):
        return thing
    raise _not_in(module, path)


def _not_in(module: ModuleType, path: str) -> UnknownTask:
    known = [name for name, value in vars(module).items() if isinstance(value, Task)]
    error = UnknownTask(path, known, where=module.__name__)
    if not known:
        error.todo = f"Decorate a function in {module.__name__} with @task."
    return error


def _unknown(name: str, registry: Registry | None) -> UnknownTask:
    names = registry.names() if registry is not None else ()
    error = UnknownTask(name, names)
    rest = "it as module:function, or pass --unchecked if only the workers know it."
    error.todo = f"Use one of: {', '.join(names)}; or name {rest}" if names else f"Name {rest}"
    if here := _functions_here(name):
        error.todo = f"Did you mean {' or '.join(here)}? Otherwise name {rest}"
    return error


def _functions_here(name: str) -> list[str]:
    """Return `module:name` for each file here that defines the task.

    The files of the current directory are read, not imported.
    """
    if not name.isidentifier():
        return []
    function = re.compile(rf"^(?:async )?def {name}\(", re.MULTILINE)
    found = []
    for path in sorted(Path.cwd().glob("*.py"))[:MOST_FILES]:
        with suppress(OSError, UnicodeDecodeError):
            text = path.read_text(encoding="utf-8")
            if "@task" in text and function.search(text):
                found.append(f"{path.stem}:{name}")
    return found


STDIN = "-"


@dataclass(frozen=True, slots=True)
class SubmitOptions:
    """The command line."""

    task: str | None = None
    arguments: tuple[str, ...] = ()
    command: str | None = None
    """Command line for a shell."""
    module: str | None = None
    unchecked: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the submission, named as in `JobSpec`."""
    count: int = 1


def command_of(shell: str | None, words: Sequence[str]) -> str | None:
    """Return the shell command: as it was given, or the words after `--`."""
    if shell is not None and words:
        raise InvalidArguments("A command was given twice, with --shell and after --.", todo="Give one.")
    if shell is not None or not words:
        return shell
    return words[0] if len(words) == 1 else shlex.join(words)


def read_metadata(words: Sequence[str]) -> dict[str, str]:
    """Return the metadata from `key=text` words."""
    pairs = [word.partition("=") for word in words]
    wrong = [word for word, (name, equals, _) in zip(words, pairs, strict=True) if not (name and equals)]
    if wrong:
        raise InvalidArguments(
            f"{wrong[0]!r} is not KEY=TEXT.",
            todo="Write --metadata tenant=acme.",
            facts={"argument": wrong[0]},
        )
    return {name: text for name, _, text in pairs}


def read_time(text: str | None, option: str) -> datetime | None:
    """Return the time that an option gives; its zone is checked later."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArguments(
            f"{option} {text} is not a time.",
            todo="Write 2026-12-24T18:00+01:00, or 2026-12-24T17:00Z.",
            facts={"option": option, "given": text},
        ) from None


def read_limit(text: str | None) -> dict[str, Any]:
    """Return by when a job must have started: as a time, or as a duration."""
    if text is not None and is_duration(text):
        return {"start_within_s": parse_seconds(text)}
    return {"not_after": read_time(text, "--not-after")}


def read_unique(**content: Any) -> Unique | None:
    """Return the rule that the options for unique jobs make."""
    given = {
        name: tuple(value) if isinstance(value, list) else value for name, value in content.items() if value
    }
    if not given:
        return None
    try:
        return msgspec.convert(given, Unique)
    except msgspec.ValidationError as error:
        raise InvalidArguments(
            f"The options for a unique job do not fit: {decoding_error(error)}.",
            todo="Scopes are task and queue; policies are reject, existing, replace and debounce.",
            facts={"cause": decoding_error(error)},
        ) from None


def read_after(
    jobs: Sequence[str] | None, *, need_any: bool, on_end: bool, into: str | None, skip: bool
) -> After | None:
    """Return the jobs that a job comes after, and the ends it waits for."""
    if not jobs:
        if need_any or on_end or into or skip:
            raise InvalidArguments(
                "--after-any, --after-end, --after-into and --or-skip need --after.",
                todo="Name the jobs that it comes after: --after ID.",
            )
        return None
    return After(
        jobs=tuple(jobs),
        need="any" if need_any else "all",
        on="end" if on_end else "success",
        otherwise="skip" if skip else "cancel",
        into=into or "",
    )


def specs_for(options: SubmitOptions, here: Project, lines: Iterable[bytes]) -> list[JobSpec]:
    """Return the jobs to submit; `lines` are those of standard input."""
    maker = SpecBuilder(options, here)
    if options.command is not None:
        return [_shell_spec(options, options.command)] * options.count
    if options.task is None:
        raise InvalidArguments(
            "No task given.",
            todo="Name a task, such as shop.tasks:send, or a command with --shell 'make test'.",
        )
    task = options.task
    if task == STDIN:
        return [_in_line(number, maker.whole_spec, line) for number, line in _numbered(lines)] * options.count
    if options.arguments == (STDIN,):
        make = partial(maker.spec, task)
        return [_in_line(number, make, line) for number, line in _numbered(lines)] * options.count
    try:
        arguments = typed_arguments(options.arguments)
    except InvalidArguments as error:
        raise maker.with_signature(error, task) from None
    return [maker.spec(task, arguments)] * options.count


def _shell_spec(options: SubmitOptions, command: str) -> JobSpec:
    if options.task is not None:
        raise InvalidArguments(
            f"Both a task ({options.task}) and a shell command were given.",
            todo="Give one of them.",
            facts={"task": options.task, "command": command},
        )
    return _converted(
        {"task": SHELL_NAME, **options.options, "input": msgspec.Raw(msgspec.json.encode({"run": command}))}
    )


class SpecBuilder:
    """Builds job specs from a command line."""

    def __init__(self, options: SubmitOptions, here: Project) -> None:
        self._options = options
        self._settings = here.settings
        self._tasks = TaskNames(options.module or here.worker.module)

    def spec(self, name: str, arguments: bytes | dict[str, Any]) -> JobSpec:
        """Return one job; the arguments are JSON, or by name."""
        options = self._options.options
        if isinstance(arguments, bytes):
            check_size(name, arguments, self._settings)
        if self._options.unchecked:
            raw = arguments if isinstance(arguments, bytes) else msgspec.json.encode(arguments)
            _decoded(raw)
            return _converted({"task": name, **options, "input": msgspec.Raw(raw)})
        return _spec_of(self._tasks.find(name).options(**options), arguments)

    def with_signature(self, error: InvalidArguments, name: str) -> InvalidArguments:
        """Return the error with the parameters of the task, if it is known."""
        if not self._options.unchecked:
            with suppress(InterlockError):
                error.todo += f" {name} takes {self._tasks.find(name).takes}."
        return error

    def whole_spec(self, line: bytes) -> JobSpec:
        """Return a job from a line with all of it, overridden by options."""
        check_size(STDIN, line, self._settings)
        given = _decoded(line)
        if not isinstance(given, dict) or not isinstance(given.get("task"), str):
            raise InvalidArguments('It is not an object with a "task".', todo=_WHOLE)
        arguments = msgspec.json.encode(given.pop("input", {}))
        spec = _converted({**given, **self._options.options})
        if self._options.unchecked:
            return msgspec.structs.replace(spec, input=msgspec.Raw(arguments))
        own = {key: getattr(spec, key) for key in (*given, *self._options.options) if key != "task"}
        return _spec_of(self._tasks.find(spec.task).options(**own), arguments)


def _spec_of(task: Task[..., Any], arguments: bytes | dict[str, Any]) -> JobSpec:
    if isinstance(arguments, dict):
        try:
            return task.spec(**arguments)
        except InvalidArguments as error:
            raise _with_advice(error, arguments) from None
    match _decoded(arguments):
        case dict() as by_name:
            return task.spec(**by_name)
        case list() as by_position:
            return task.spec(*by_position)
        case other:
            raise InvalidArguments(
                f"The arguments are {type(other).__name__}, and should be a JSON object or list.",
                todo=f"It takes {task.takes}.",
            )


def _with_advice(error: InvalidArguments, arguments: dict[str, Any]) -> InvalidArguments:
    """Return the error with advice how to quote text that looks like a number."""
    odd = [name for name, value in arguments.items() if not isinstance(value, (str, dict, list))]
    if odd and "expected str" in error.sentence:
        error.todo += f" To give text that looks like JSON, quote it twice: {odd[0]}='\"...\"'."
    return error


def typed_arguments(words: Sequence[str]) -> bytes | dict[str, Any]:
    """Return the arguments from `key=value` words, or from JSON."""
    if len(words) == 1 and words[0].lstrip()[:1] in ("{", "["):
        return words[0].encode(errors="surrogateescape")
    given: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise InvalidArguments(
                f"{word!r} is neither key=value nor a JSON object.",
                todo="Write width=200 name=cat, or '{\"width\": 200}'.",
                facts={"argument": word},
            )
        if name in given:
            raise InvalidArguments(f"{name} is given twice.", todo="Give it once.", facts={"argument": name})
        given[name] = _value(value)
    return given


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return text


_CLOSING = {b"{": "}", b"[": "]"}


def _decoded(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        cut = "truncated" in str(error) and raw.lstrip()[:1] in _CLOSING
        why = f"the closing {_CLOSING[raw.lstrip()[:1]]} is missing" if cut else decoding_error(error)
        raise InvalidArguments(
            f"The arguments are not JSON: {why}.", todo="Write '{\"width\": 200}', or width=200."
        ) from None


def _converted(given: dict[str, Any]) -> JobSpec:
    try:
        return msgspec.convert(given, JobSpec)
    except msgspec.ValidationError as error:
        cause = decoding_error(error)
        raise InvalidArguments(
            f"The job cannot be read: {cause}.", todo=_WHOLE, facts={"cause": cause}
        ) from None


_WHOLE = 'Write {"task": "shop.send", "input": {...}}, with any of: ' + ", ".join(
    name for name in JobSpec.__struct_fields__ if name not in ("task", "input")
)


def _numbered(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    return ((number, line.strip()) for number, line in enumerate(lines, 1) if line.strip())


def _in_line(number: int, make: Callable[[bytes], JobSpec], line: bytes) -> JobSpec:
    """Return a job from a line of standard input; errors name its number."""
    try:
        return make(line)
    except InterlockError as error:
        error.sentence = f"Line {number}: {error.sentence}"
        error.facts["line"] = number
        raise


def submit(
    store: str | None,
    options: SubmitOptions,
    request_id: str | None,
    wait: bool,
    patience_s: float | None,
    *,
    verbose: bool = False,
    as_json: bool,
) -> int:
    """Submit the jobs; return the exit code."""
    here = project.load(store)
    given = specs_for(options, here, sys.stdin.buffer if sys.stdin else ())
    made = Chain(load_middleware(here.middleware)).submission_sync(given)
    for spec in made:
        check_spec(spec, here.settings)

    async def work() -> int:
        async with connected(here) as port:
            ids = await _stored(port, made, request_id, quiet=as_json)
            if wait:
                return await _waited(port, ids, patience_s, verbose=verbose, as_json=as_json)
            if as_json:
                _print_views([view for view in await _views(port.services.jobs, ids) if view is not None])
            return 0

    try:
        return asyncio.run(work())
    except KeyboardInterrupt:
        if wait:
            typer.echo("Stopped watching; the submitted jobs continue.", err=True)
        raise


async def _stored(
    connection: ServiceConnection, made: Sequence[JobSpec], request_id: str | None, *, quiet: bool
) -> list[str]:
    """Store the jobs, and print the ids of each batch as soon as it is stored."""
    jobs, made = connection.services.jobs, await _with_whole_ids(connection, made)
    ids: list[str] = []
    size = len(made) if request_id is not None else BULK
    for start in range(0, len(made), max(size, 1)):
        batch = made[start : start + size]
        new = await jobs.submit_jobs(batch, actor=actor(), request_id=request_id)
        ids += [each.id for each in new]
        for each in new:
            if each.how != "created":
                typer.echo(f"{each.id} {_FOUND[each.how]}", err=True)
        if not quiet:
            print("\n".join(each.id for each in new), flush=True)
    return ids


_FOUND = {
    "existing": "exists already; no job was created.",
    "replaced": "was waiting already; its input was replaced.",
    "debounced": "was waiting already; its input was replaced, and its delay begins anew.",
}


async def _with_whole_ids(connection: ServiceConnection, made: Sequence[JobSpec]) -> Sequence[JobSpec]:
    """Return the jobs with whole ids of their parents and predecessors."""
    named = {spec.parent_job_id for spec in made if spec.parent_job_id} | set(named_in(made))
    if not named:
        return made
    whole = {text: await whole_id(connection, text) for text in named}

    def with_ids(spec: JobSpec) -> JobSpec:
        after = spec.after
        if after is not None:
            after = msgspec.structs.replace(after, jobs=tuple(whole.get(each, each) for each in after.jobs))
        return msgspec.structs.replace(spec, parent_job_id=whole.get(spec.parent_job_id or ""), after=after)

    return [with_ids(spec) for spec in made]


async def _waited(
    port: ServiceConnection, ids: Sequence[str], patience_s: float | None, *, verbose: bool, as_json: bool
) -> int:
    if as_json:
        code, views = await job_watch.follow_quietly(port, ids, patience_s)
        _print_views(views)
        return code
    code, views = await job_watch.follow(port, ids, patience_s, verbose=verbose)
    for view in views:
        if isinstance(view.result, msgspec.Raw):
            result = bytes(view.result).decode(errors="replace")
            print(result if len(ids) == 1 else f"{view.id}\t{result}", flush=True)
    return code


async def _views(jobs: JobsApi, ids: Sequence[str]) -> list[JobView | None]:
    found: list[JobView | None] = []
    for start in range(0, len(ids), BULK):
        found += await jobs.get_many(ids[start : start + BULK])
    return found


def _print_views(views: Sequence[JobView]) -> None:
    if len(views) == 1:
        print_struct(views[0])
        return
    for view in views:
        print_line(view)
