"""The log of a server: one line per event, JSON in a pipe, readable on a terminal.

    {"at": "2026-01-31T12:00:00.123Z", "level": "info", "message": "request", "method": "POST", …}

It needs only the standard library, so that a server starts quickly. Tokens and leases are secrets. They are
never logged deliberately; one that appears in a line anyway (in the text of an error, say) is redacted
before the line is written.

Refusals cost a client nothing, so they must not fill a disk: of similar ones the first few are written, and
then a summary once a minute. All of them are counted in the metrics.

Why: decision 0297.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from interlock.text import harmless
from interlock.wire.credentials import redacted

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

FIRST = 10
"""Number of similar events written within a minute; later ones are only counted."""
WITHIN_S = 60.0
MAX_ALIKE = 100
"""Number of kinds of events distinguished within a minute; all others share one."""


class _Alike:
    """Similar events within a minute."""

    __slots__ = ("alike", "level", "more", "since", "written")

    def __init__(self, alike: Mapping[str, Any], level: str, since: float) -> None:
        self.alike = alike
        self.level = level
        self.since = since
        self.written = 0
        self.more = 0


class ServerLog:
    """Writes whole lines from any thread. A closed reader must not end the server."""

    def __init__(
        self,
        level: str = "info",
        form: str = "auto",
        stream: TextIO | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._least = LEVELS[level]
        self._plain = form == "text" or (form == "auto" and self._stream.isatty())
        self._lock = threading.Lock()
        self._monotonic = monotonic
        self._counting = threading.Lock()
        self._alike: dict[tuple[Any, ...], _Alike] = {}

    def has(self, level: str) -> bool:
        """Return whether events of this level are written."""
        return LEVELS[level] >= self._least

    def debug(self, message: str, **facts: Any) -> None:
        """Log a debug message."""
        self.write("debug", message, facts)

    def info(self, message: str, **facts: Any) -> None:
        """Log an informational message."""
        self.write("info", message, facts)

    def warning(self, message: str, **facts: Any) -> None:
        """Log a warning."""
        self.write("warning", message, facts)

    def error(self, message: str, **facts: Any) -> None:
        """Log an error."""
        self.write("error", message, facts)

    def exception(self, message: str, **facts: Any) -> None:
        """Log the current exception with its traceback, unless it is frequent."""
        kind = sys.exc_info()[0]
        alike = {"event": message, "fault": kind.__name__ if kind else ""}
        self.seldom(message, alike, level="error", **facts, trace=traceback.format_exc())

    def seldom(self, message: str, alike: Mapping[str, Any], *, level: str = "info", **facts: Any) -> None:
        """Log an event, unless many similar ones were written within a minute.

        Those that are left out are summarised.
        """
        self.summarise()
        with self._counting:
            seen = self._seen(alike, level)
            is_written = seen.written < FIRST
            if is_written:
                seen.written += 1
            else:
                seen.more += 1
            is_first = seen.more == 1
        if is_first:
            with contextlib.suppress(RuntimeError):  # without a loop it is written with the next event
                asyncio.get_running_loop().call_later(WITHIN_S, self.summarise)
        if is_written:
            self.write(level, message, facts)

    def summarise(self, *, ending: bool = False) -> None:
        """Log the number of suppressed events whose minute is over."""
        over: list[_Alike] = []
        with self._counting:
            now = self._monotonic()
            while self._alike:
                key, seen = next(iter(self._alike.items()))
                if now - seen.since < WITHIN_S and not ending:
                    break
                del self._alike[key]
                over.append(seen)
        for seen in over:
            if seen.more:
                self.write(
                    seen.level, f"{seen.more} more like this in the last {WITHIN_S:g} s", dict(seen.alike)
                )

    def _seen(self, alike: Mapping[str, Any], level: str) -> _Alike:
        """Return the similar events of this minute, creating them if necessary."""
        key = tuple(alike.items())
        if key not in self._alike and len(self._alike) >= MAX_ALIKE:
            alike, key = {"alike": "others"}, ()
        if key not in self._alike:
            self._alike[key] = _Alike(alike, level, self._monotonic())
        return self._alike[key]

    def write(self, level: str, message: str, facts: dict[str, Any]) -> None:
        """Log an event of any level."""
        if LEVELS[level] < self._least:
            return
        line = self._line(level, message, {name: value for name, value in facts.items() if value != ""})
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._stream.write(f"{redacted(line)}\n")
            self._stream.flush()

    def _line(self, level: str, message: str, facts: dict[str, Any]) -> str:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if not self._plain:
            line = {"at": at, "level": level, "message": message, **facts}
            return msgspec.json.encode(line, enc_hook=repr).decode()
        text = harmless(" ".join(f"{name}={value}" for name, value in facts.items() if name != "trace"))
        trace = f"\n{facts['trace'].rstrip()}" if "trace" in facts else ""
        return f"{at[11:23]} {level:<7} {message} {text}{trace}"


@contextlib.contextmanager
def libraries_logging(log: ServerLog) -> Iterator[None]:
    """Write warnings and errors of `logging` to this log, within the context."""
    handler = _LogForwarder(log)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


class _LogForwarder(logging.Handler):
    """Forwards records of `logging` to the log."""

    def __init__(self, log: ServerLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        facts: dict[str, Any] = {"logger": record.name}
        if record.exc_info:
            facts["trace"] = "".join(traceback.format_exception(*record.exc_info))
        level = "error" if record.levelno >= logging.ERROR else "warning"
        alike = {"logger": record.name, "said": str(record.msg)[:100]}
        self._log.seldom(record.getMessage(), alike, level=level, **facts)
