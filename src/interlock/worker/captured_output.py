"""Prints and log records of handlers, as lines of the log of their job.

A worker executes many handlers at once, so a context variable identifies the handler of a line: tasks of the
event loop, threads of the worker and `asyncio.to_thread` have it. A thread that a handler starts itself has
not, unless it is started with `contextvars.copy_context().run`.

Captured lines are still written to their usual place: to the output of the worker, and to the handlers of
`logging` in the program.

Why: decision 0346.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import traceback
from collections.abc import Iterator
from typing import Any, TextIO

from interlock.worker.context import running

OFF = "off"
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


@contextlib.contextmanager
def capturing(level: str) -> Iterator[None]:
    """Put prints and log records into the logs of jobs while entered.

    Records below `level` are left out.
    """
    if level == OFF:
        yield
        return
    out, err = sys.stdout, sys.stderr
    if out is not None:
        sys.stdout = _Printed(out, "stdout")
    if err is not None:
        sys.stderr = _Printed(err, "stderr")
    ours = sys.stdout, sys.stderr
    try:
        with records_captured(level):
            yield
    finally:
        if sys.stdout is ours[0]:
            sys.stdout = out
        if sys.stderr is ours[1]:
            sys.stderr = err


@contextlib.contextmanager
def records_captured(level: str) -> Iterator[None]:
    """Put records of `logging` into the logs of jobs while entered.

    Records below `level` are left out.
    """
    root, handler = logging.getLogger(), _Records(LEVELS[level])
    before = root.level
    # Other handlers of the program get no more than before: the level of the root logger.
    others = {other: other.level for other in root.handlers if other.level < before}
    for other in others:
        other.setLevel(before)
    root.addHandler(handler)
    root.setLevel(min(before, handler.level))
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
        for other, own in others.items():
            other.setLevel(own)


class _Records(logging.Handler):
    """Forwards each record to the context of the handler that made it."""

    def emit(self, record: logging.LogRecord) -> None:
        context = running()
        if context is None:
            return
        try:
            text = record.getMessage()
        except Exception:  # noqa: BLE001 - a badly formatted line is kept
            text = str(record.msg)
        level = record.levelname.lower()
        context.log(text if record.name == "root" else f"{record.name}: {text}", level)
        if record.exc_info and record.exc_info[1] is not None:
            for piece in traceback.format_exception(record.exc_info[1]):
                for line in piece.rstrip("\n").split("\n"):
                    context.log(line, level)


class _Printed:
    """A stream that also copies the output of a handler to its context."""

    def __init__(self, wrapped: TextIO, name: str) -> None:
        self._wrapped = wrapped
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)

    def write(self, text: str) -> int:
        context = running()
        if context is not None:
            context.printed(text, self._name)
        return self._wrapped.write(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)
