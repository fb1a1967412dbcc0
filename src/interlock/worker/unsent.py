"""What a handler has said and nobody has sent yet: bounded, whatever the handler does.

Of progress and of checkpoints only the latest counts. Of the log the newest lines are kept, and the
first line then says how many are missing, so that a gap is never mistaken for silence.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime

import msgspec

from interlock.wire.runner import LogLine, Progress

MAX_LINES = 1_000
MAX_LOG_BYTES = 256 * 1024
MAX_LINE_BYTES = 8 * 1024


class Unsent(msgspec.Struct, frozen=True, kw_only=True):
    """What a handler has said since the runner asked last."""

    progress: Progress | None = None
    checkpoint: msgspec.Raw | None = None
    log: tuple[LogLine, ...] = ()
    dropped: int = 0
    """How many lines did not fit; the first of `log` then says so."""
    heartbeat: bool = False
    """The handler asks for a sign of life to be sent now."""

    def __bool__(self) -> bool:
        return self != NOTHING


NOTHING = Unsent()


class Lines:
    """The newest lines of a log. Whoever shares one between threads holds a lock."""

    __slots__ = ("_bytes", "_dropped", "_dropped_at", "_lines")

    def __init__(self) -> None:
        self._lines: deque[LogLine] = deque()
        self._bytes = 0
        self._dropped = 0
        self._dropped_at: datetime | None = None

    def __len__(self) -> int:
        return len(self._lines) + bool(self._dropped)

    def add(self, line: LogLine) -> None:
        """Keep a line; the oldest may have to go for it."""
        self._lines.append(line)
        self._bytes += _size(line)
        self._drop_oldest()

    def take(self) -> tuple[tuple[LogLine, ...], int]:
        """All lines, and how many are missing before them; none are kept."""
        if not self:
            return (), 0
        taken, dropped = (*self._line_about_dropped(), *self._lines), self._dropped
        self._lines.clear()
        self._bytes, self._dropped, self._dropped_at = 0, 0, None
        return taken, dropped

    def put_back(self, taken: tuple[LogLine, ...], dropped: int) -> None:
        """Keep again what was taken, before the lines that came since."""
        lines = taken[1:] if dropped else taken
        if dropped:
            self._dropped += dropped
            self._dropped_at = self._dropped_at or taken[0].at
        self._lines.extendleft(reversed(lines))
        self._bytes += sum(map(_size, lines))
        self._drop_oldest()

    def _drop_oldest(self) -> None:
        while self._lines and (len(self) > MAX_LINES or self._bytes > MAX_LOG_BYTES):
            oldest = self._lines.popleft()
            self._bytes -= _size(oldest)
            self._dropped += 1
            self._dropped_at = oldest.at

    def _line_about_dropped(self) -> tuple[LogLine, ...]:
        if self._dropped_at is None:
            return ()
        noun = "line is" if self._dropped == 1 else "lines are"
        text = f"{self._dropped:,} {noun} missing here: too much was logged at once"
        return (LogLine(self._dropped_at, "warning", text),)


def cut(text: str, limit_bytes: int) -> str:
    """Text that can be sent: within the limit, without halves of surrogate pairs and without NUL."""
    if len(text) <= limit_bytes and text.isascii() and "\x00" not in text:
        return text
    data = text[: limit_bytes + 1].replace("\x00", "\\x00").encode(errors="backslashreplace")
    if len(data) <= limit_bytes:
        return data.decode()
    mark = f"… (cut: {len(text):,} characters)"
    return data[: limit_bytes - len(mark.encode())].decode(errors="ignore") + mark


def _size(line: LogLine) -> int:
    return len(line.text) if line.text.isascii() else len(line.text.encode())
