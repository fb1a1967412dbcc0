"""What a worker writes about itself: one line per event, JSON into a pipe, readable on a terminal.

The name of a line is its `message`, because `event` is what the machines call what happened to them:

    {"message": "task_state_transition", "task_id": "j_0123456789ab", "task_type": "resize",
     "from_state": "claiming", "to_state": "processing", "event": "claim_succeeded", ...}

A lease token is a secret. It is not logged anywhere, and should one get into a line after all (in the
text of somebody's error, say) it is taken out before the line is written.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, TextIO, TypeAlias

import msgspec
import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

Log: TypeAlias = FilteringBoundLogger

_TOKEN = re.compile(r"\b(j_[0-9a-f]{12}\.\d+\.\d+)\.[0-9A-Za-z_-]{8,}")
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def make_log(level: str = "info", form: str = "auto", stream: TextIO | None = None) -> Log:
    """A log that writes to `stream`, standard error unless told otherwise."""
    stream = sys.stderr if stream is None else stream
    log: Log = structlog.wrap_logger(
        _Lines(stream),
        processors=[*_facts(), *_words(), _renderer(form, stream), _scrub],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
    )
    return log


@contextlib.contextmanager
def libraries_logging(
    level: str = "info", form: str = "auto", stream: TextIO | None = None
) -> Iterator[None]:
    """While this lasts, what libraries say through `logging` is written the same way."""
    stream = sys.stderr if stream is None else stream
    handler = _Handler(_Lines(stream), _renderer(form, stream))
    handler.setLevel(_LEVELS[level])  # others may want more than this one
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(_LEVELS[level])
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)


def _facts() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]


def _words() -> list[Processor]:
    return [structlog.processors.EventRenamer("message", replace_by="_event")]


def _renderer(form: str, stream: TextIO) -> Processor:
    terminal = stream.isatty()
    if form == "text" or (form == "auto" and terminal):
        return structlog.dev.ConsoleRenderer(colors=terminal, event_key="message")
    return structlog.processors.JSONRenderer(serializer=_json)


def _json(line: EventDict, **_: Any) -> str:
    return msgspec.json.encode(line, enc_hook=repr).decode()


def _scrub(_logger: WrappedLogger, _method: str, line: Any) -> str:
    return _TOKEN.sub(r"\1.***", line)


class _Lines:
    """Writes whole lines from any thread. A reader that has gone away must not end the worker."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def msg(self, line: str) -> None:
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._stream.write(f"{line}\n")
            self._stream.flush()

    debug = info = warning = error = critical = exception = log = msg


class _Handler(logging.Handler):
    """Makes lines like ours out of those of `logging`."""

    def __init__(self, lines: _Lines, render: Processor) -> None:
        super().__init__()
        self._lines = lines
        self._chain: list[Callable[..., Any]] = [*_facts()[2:], *_words(), render, _scrub]

    def emit(self, record: logging.LogRecord) -> None:
        line: Any = {"event": _text(record), "level": record.levelname.lower(), "logger": record.name}
        if record.exc_info:
            line["exc_info"] = record.exc_info
        for process in self._chain:
            line = process(None, record.levelname.lower(), line)
        self._lines.msg(line)


def _text(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - a library that formats its line wrongly has still said something
        return str(record.msg)
