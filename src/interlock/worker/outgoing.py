"""What a handler has said and nobody has sent yet: bounded, whatever the handler does.

Of progress and of checkpoints only the latest counts. Of the log the newest lines are kept, and where
they begin in all that was written: so a gap is never mistaken for silence, nor a repeat for news.
"""

from __future__ import annotations

from collections import deque

import msgspec

from interlock.wire.runner import LogLine, Progress, size_of

MAX_LINES = 1_000
MAX_LOG_BYTES = 256 * 1024
MAX_LINE_BYTES = 8 * 1024


class Unsent(msgspec.Struct, frozen=True, kw_only=True):
    """What a handler has said since the runner asked last."""

    progress: Progress | None = None
    checkpoint: msgspec.Raw | None = None
    log: tuple[LogLine, ...] = ()
    log_offset: int = 0
    """Where these lines begin in all that the handler has written, in bytes."""
    heartbeat: bool = False
    """The handler asks for a sign of life to be sent now."""
    uploading: bool = False
    """The handler has done its work, and uploads what it leaves behind."""

    def __bool__(self) -> bool:
        return self != NOTHING


NOTHING = Unsent()


class Lines:
    """The newest lines of a log. Whoever shares one between threads holds a lock."""

    __slots__ = ("_bytes", "_end", "_lines")

    def __init__(self) -> None:
        self._lines: deque[LogLine] = deque()
        self._bytes = 0
        self._end = 0

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def offset(self) -> int:
        """Where the oldest line that is kept begins, in all that was ever written."""
        return self._end - self._bytes

    def add(self, line: LogLine) -> None:
        """Keep a line; the oldest may have to go for it."""
        self._lines.append(line)
        size = size_of(line)
        self._bytes += size
        self._end += size
        self._drop_oldest()

    def take(self) -> tuple[tuple[LogLine, ...], int]:
        """All lines, and where they begin; none are kept."""
        taken, offset = tuple(self._lines), self.offset
        self._lines.clear()
        self._bytes = 0
        return taken, offset

    def put_back(self, taken: tuple[LogLine, ...], offset: int) -> None:
        """Keep again what was taken, before the lines that came since; not, when some of those are gone."""
        size = sum(map(size_of, taken))
        if offset + size == self.offset:
            self._lines.extendleft(reversed(taken))
            self._bytes += size
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        while self._lines and (len(self._lines) > MAX_LINES or self._bytes > MAX_LOG_BYTES):
            self._bytes -= size_of(self._lines.popleft())


def pieces(text: str, limit_bytes: int) -> list[str]:
    """Text that can be sent, in as many pieces as the limit makes of it; nothing of it is left out."""
    if len(text) <= limit_bytes and text.isascii() and "\x00" not in text:
        return [text]
    data = text.replace("\x00", "\\x00").encode(errors="backslashreplace")
    found = []
    while len(data) > limit_bytes:
        piece = data[:limit_bytes].decode(errors="ignore")  # not through the middle of a character
        found.append(piece)
        data = data[len(piece.encode()) :]
    return [*found, data.decode()]


def cut(text: str, limit_bytes: int) -> str:
    """Text that can be sent: within the limit, without halves of surrogate pairs and without NUL."""
    if len(text) <= limit_bytes and text.isascii() and "\x00" not in text:
        return text
    data = text[: limit_bytes + 1].replace("\x00", "\\x00").encode(errors="backslashreplace")
    if len(data) <= limit_bytes:
        return data.decode()
    mark = f"… (cut: {len(text):,} characters)"
    return data[: limit_bytes - len(mark.encode())].decode(errors="ignore") + mark
