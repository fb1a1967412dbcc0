"""From what was typed to jobs that can be submitted, checked before anything is stored."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from interlock.cli.project import Project
from interlock.cli.task_names import SHELL_NAME, TaskNames
from interlock.errors import InterlockError, InvalidArguments
from interlock.systems.orchestrator.submission import check_size
from interlock.wire.jobs import JobSpec
from interlock.worker.codec import told
from interlock.worker.tasks import Task

STDIN = "-"


@dataclass(frozen=True, slots=True)
class Asked:
    """What was typed."""

    task: str | None = None
    arguments: tuple[str, ...] = ()
    command: str | None = None
    """For a shell."""
    module: str | None = None
    unchecked: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    """Of the submission, as `JobSpec` calls them."""
    count: int = 1


def command_of(shell: str | None, words: Sequence[str]) -> str | None:
    """The command for a shell: as it was given, or the words behind `--` as they were."""
    if shell is not None and words:
        raise InvalidArguments("A command was given twice, with --shell and behind --.", todo="Give one.")
    if shell is not None or not words:
        return shell
    return words[0] if len(words) == 1 else shlex.join(words)


def specs_for(asked: Asked, here: Project, lines: Iterable[bytes]) -> list[JobSpec]:
    """The jobs that were asked for; `lines` is what standard input has."""
    maker = Maker(asked, here)
    if asked.command is not None:
        return [_shell_spec(asked, asked.command)] * asked.count
    if asked.task is None:
        raise InvalidArguments(
            "No task given.",
            todo="Name a task, such as shop.tasks:send, or a command with --shell 'make test'.",
        )
    task = asked.task
    if task == STDIN:
        return [_in_line(number, maker.whole_spec, line) for number, line in _numbered(lines)] * asked.count
    if asked.arguments == (STDIN,):
        make = partial(maker.spec, task)
        return [_in_line(number, make, line) for number, line in _numbered(lines)] * asked.count
    try:
        arguments = typed_arguments(asked.arguments)
    except InvalidArguments as error:
        raise maker.with_signature(error, task) from None
    return [maker.spec(task, arguments)] * asked.count


def _shell_spec(asked: Asked, command: str) -> JobSpec:
    if asked.task is not None:
        raise InvalidArguments(
            f"Both a task ({asked.task}) and a command for a shell are there.",
            todo="Give one of them.",
            facts={"task": asked.task, "command": command},
        )
    return _converted(
        {"task": SHELL_NAME, **asked.options, "input": msgspec.Raw(msgspec.json.encode({"run": command}))}
    )


class Maker:
    """Makes jobs as they were asked for."""

    def __init__(self, asked: Asked, here: Project) -> None:
        self._asked = asked
        self._settings = here.settings
        self._tasks = TaskNames(asked.module or here.worker.module)

    def spec(self, name: str, arguments: bytes | dict[str, Any]) -> JobSpec:
        """One job; the arguments are JSON, or by name."""
        options = self._asked.options
        if isinstance(arguments, bytes):
            check_size(name, arguments, self._settings)
        if self._asked.unchecked:
            raw = arguments if isinstance(arguments, bytes) else msgspec.json.encode(arguments)
            _decoded(raw)
            return _converted({"task": name, **options, "input": msgspec.Raw(raw)})
        return _spec_of(self._tasks.find(name).options(**options), arguments)

    def with_signature(self, error: InvalidArguments, name: str) -> InvalidArguments:
        """Return the error with what the task takes, as far as that is known here."""
        if not self._asked.unchecked:
            with suppress(InterlockError):
                error.todo += f" {name} takes {self._tasks.find(name).takes}."
        return error

    def whole_spec(self, line: bytes) -> JobSpec:
        """One job from a line that says everything about it; what was typed goes before it."""
        check_size(STDIN, line, self._settings)
        given = _decoded(line)
        if not isinstance(given, dict) or not isinstance(given.get("task"), str):
            raise InvalidArguments('It is not an object with a "task".', todo=_WHOLE)
        arguments = msgspec.json.encode(given.pop("input", {}))
        spec = _converted({**given, **self._asked.options})
        if self._asked.unchecked:
            return msgspec.structs.replace(spec, input=msgspec.Raw(arguments))
        own = {key: getattr(spec, key) for key in (*given, *self._asked.options) if key != "task"}
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
    """Somebody who means text may have typed what reads as a number."""
    odd = [name for name, value in arguments.items() if not isinstance(value, (str, dict, list))]
    if odd and "expected str" in error.sentence:
        error.todo += f" To give text that looks like JSON, quote it twice: {odd[0]}='\"...\"'."
    return error


def typed_arguments(words: Sequence[str]) -> bytes | dict[str, Any]:
    """What was typed as `key=value`, or as JSON."""
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
        why = f"the closing {_CLOSING[raw.lstrip()[:1]]} is missing" if cut else told(error)
        raise InvalidArguments(
            f"The arguments are not JSON: {why}.", todo="Write '{\"width\": 200}', or width=200."
        ) from None


def _converted(given: dict[str, Any]) -> JobSpec:
    try:
        return msgspec.convert(given, JobSpec)
    except msgspec.ValidationError as error:
        raise InvalidArguments(
            f"The job cannot be read: {told(error)}.", todo=_WHOLE, facts={"cause": told(error)}
        ) from None


_WHOLE = 'Write {"task": "shop.send", "input": {...}}, with any of: ' + ", ".join(
    name for name in JobSpec.__struct_fields__ if name not in ("task", "input")
)


def _numbered(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    return ((number, line.strip()) for number, line in enumerate(lines, 1) if line.strip())


def _in_line(number: int, make: Callable[[bytes], JobSpec], line: bytes) -> JobSpec:
    """A job from a line of standard input; what is wrong is told with its number."""
    try:
        return make(line)
    except InterlockError as error:
        error.sentence = f"Line {number}: {error.sentence}"
        error.facts["line"] = number
        raise
