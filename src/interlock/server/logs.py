"""What a server writes about itself: one line per event, JSON into a pipe, readable on a terminal.

    {"at": "2026-01-31T12:00:00.123Z", "level": "info", "message": "request", "method": "POST", …}

Nothing here needs more than the standard library, so that a server is up before somebody wonders.
Tokens and leases are secrets. They are not logged anywhere, and should one get into a line after all
(in the text of somebody's error, say) it is taken out before the line is written.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
import threading
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from interlock.systems.access.secret import without_secrets
from interlock.wire.harmless import harmless

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

_LEASE = re.compile(r"\b(j_[0-9a-f]{12}\.\d+\.\d+)\.[0-9a-f]{32}")


class Log:
    """Writes whole lines from any thread. A reader that has gone away must not end the server."""

    def __init__(self, level: str = "info", form: str = "auto", stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._least = LEVELS[level]
        self._plain = form == "text" or (form == "auto" and self._stream.isatty())
        self._lock = threading.Lock()

    def debug(self, message: str, **facts: Any) -> None:
        """For whoever looks closely."""
        self._write("debug", message, facts)

    def info(self, message: str, **facts: Any) -> None:
        """What has happened."""
        self._write("info", message, facts)

    def warning(self, message: str, **facts: Any) -> None:
        """Somebody should look at this one day."""
        self._write("warning", message, facts)

    def error(self, message: str, **facts: Any) -> None:
        """Somebody should look at this."""
        self._write("error", message, facts)

    def exception(self, message: str, **facts: Any) -> None:
        """The same, with the trace of what is being handled."""
        self._write("error", message, {**facts, "trace": traceback.format_exc()})

    def _write(self, level: str, message: str, facts: dict[str, Any]) -> None:
        if LEVELS[level] < self._least:
            return
        line = self._line(level, message, {name: value for name, value in facts.items() if value != ""})
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._stream.write(f"{_harmless(line)}\n")
            self._stream.flush()

    def _line(self, level: str, message: str, facts: dict[str, Any]) -> str:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if not self._plain:
            line = {"at": at, "level": level, "message": message, **facts}
            return msgspec.json.encode(line, enc_hook=repr).decode()
        told = harmless(" ".join(f"{name}={value}" for name, value in facts.items() if name != "trace"))
        trace = f"\n{facts['trace'].rstrip()}" if "trace" in facts else ""
        return f"{at[11:23]} {level:<7} {message} {told}{trace}"


@contextlib.contextmanager
def libraries_logging(log: Log) -> Iterator[None]:
    """While this lasts, what others say through `logging` is written the same way, from warnings on."""
    handler = _Handler(log)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


class _Handler(logging.Handler):
    """Makes lines like ours out of those of `logging`."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        facts: dict[str, Any] = {"logger": record.name}
        if record.exc_info:
            facts["trace"] = "".join(traceback.format_exception(*record.exc_info))
        say = self._log.error if record.levelno >= logging.ERROR else self._log.warning
        say(record.getMessage(), **facts)


def _harmless(line: str) -> str:
    return _LEASE.sub(r"\1.***", without_secrets(line))
