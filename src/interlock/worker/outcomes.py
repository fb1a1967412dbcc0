"""The outcome of a handler, as reported.

No result or exception of a handler may break its report: results that JSON cannot hold or that are too large
become failures with an explanation, and the text of an error is truncated and cleaned.
"""

from __future__ import annotations

import asyncio
import traceback
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

import msgspec

from interlock.errors import FlakyError, InterlockError, InvalidArguments, NotJson, UnknownTask
from interlock.wire.runner import Failed, Succeeded
from interlock.worker import codec
from interlock.worker.child_jobs import WaitsForChildren
from interlock.worker.context import TaskCancelled
from interlock.worker.postponement import RetryAt, Snooze
from interlock.worker.waits import WaitsForSignal

MAX_RESULT_BYTES = 262_144
MAX_DETAILS_BYTES = 16_384
MAX_ERROR_CHARACTERS = 500
_OURS = str(Path(__file__).parent)


class Interrupted(msgspec.Struct, frozen=True):
    """The handler stopped as it was asked to, or was killed."""

    confirmed_dead: bool = True


class Yielded(msgspec.Struct, frozen=True):
    """The handler waits for the children of its job, or for an answer, and runs again then."""

    wait: str = ""
    """The wait that it waits for; empty for children."""


class Snoozed(msgspec.Struct, frozen=True, omit_defaults=True):
    """The handler is to run again later, as if it had not run."""

    after_s: float | None = None
    until: datetime | None = None


Outcome: TypeAlias = Succeeded | Failed | Interrupted | Yielded | Snoozed


class StepFailed(Exception):
    """A command has failed; its last lines are more useful than a traceback."""

    def __init__(self, sentence: str, *, exit_code: int | None, output: str, failure_class: str = "") -> None:
        super().__init__(sentence)
        self.exit_code = exit_code
        self.output = output
        self.failure_class = failure_class


def success_of(value: object, *, max_bytes: int = MAX_RESULT_BYTES) -> Succeeded | Failed:
    """Return the outcome of a handler that returned."""
    if value is None:
        return NOTHING
    try:
        result = codec.encode(value)
    except NotJson as error:
        return _own(error, "user")
    size = memoryview(result).nbytes
    if size > max_bytes:
        return Failed(
            error=f"The result has {size} bytes as JSON and may have {max_bytes}; "
            "store it elsewhere and return where it is.",
            exception="interlock.errors.TooLarge",
            failure_class="user",
        )
    return Succeeded(result)


def outcome_of(error: BaseException) -> Failed | Interrupted | Yielded | Snoozed:
    """Return the outcome of a handler that raised.

    It failed, waits, was snoozed or interrupted.
    """
    if isinstance(error, WaitsForChildren):
        return Yielded()
    if isinstance(error, WaitsForSignal):
        return Yielded(error.wait_id)
    if isinstance(error, Snooze):
        return Snoozed(error.after_s, error.until)
    if isinstance(error, (asyncio.CancelledError, TaskCancelled)):
        return Interrupted(getattr(error, "confirmed_dead", True))
    return failure_of(error)


def failure_of(error: BaseException) -> Failed:
    """Return the failure of a handler that raised."""
    if isinstance(error, UnknownTask):
        return _own(error, "tooling")
    if isinstance(error, InvalidArguments):
        return _own(error, "user")
    if isinstance(error, StepFailed):
        return Failed(
            error=clean(str(error))[:MAX_ERROR_CHARACTERS],
            exit_code=error.exit_code,
            details=tail(error.output),
            failure_class=error.failure_class,
            logged=True,
        )
    text = str(error).strip()
    line = text.splitlines()[0] if text else ""
    name = type(error).__name__
    return Failed(
        error=clean(f"{name}: {line}" if line else name)[:MAX_ERROR_CHARACTERS],
        exception=names_of(type(error)),
        exit_code=_exit_code(error),
        details=details_of(error),
        retry_after_s=_pause_wanted(error),
        retry_at=error.retry_at if isinstance(error, RetryAt) else msgspec.UNSET,
    )


def names_of(kind: type[BaseException]) -> str:
    """Return the names of the type and its bases, most specific first."""
    return " ".join(f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__ if base is not object)


def details_of(error: BaseException) -> str:
    """Return the traceback, from the handler on; the end of a long one."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    return tail("".join(traceback.format_exception(type(error), error, trace)))


def tail(text: str, max_bytes: int = MAX_DETAILS_BYTES) -> str:
    """Return the end of a text, where the error is."""
    data = clean(text).encode()
    if len(data) <= max_bytes:
        return data.decode()
    mark = "... (the beginning is left out)\n"
    return mark + data[len(mark) - max_bytes :].decode(errors="ignore")


def clean(text: str) -> str:
    """Return the text without characters that UTF-8 or a database cannot hold."""
    return text.encode(errors="replace").decode().replace("\x00", "\N{REPLACEMENT CHARACTER}")


NOTHING = Succeeded()
"""The shared outcome of handlers that return None, as most do."""


def _own(error: InterlockError, failure_class: str) -> Failed:
    return Failed(
        error=clean(error.sentence)[:MAX_ERROR_CHARACTERS],
        exception=names_of(type(error)),
        details=clean(error.todo),
        failure_class=failure_class,
    )


def _pause_wanted(error: BaseException) -> float | msgspec.UnsetType:
    wanted = error.retry_after_s if isinstance(error, FlakyError) else None
    return msgspec.UNSET if wanted is None else wanted


def _exit_code(error: BaseException) -> int | None:
    code = getattr(error, "exit_code", getattr(error, "returncode", None))
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else 1
    return code if isinstance(code, int) and not isinstance(code, bool) else None
