"""Make external text storable: complete characters, limited length."""

from __future__ import annotations

import msgspec

from interlock.wire.credentials import blanked
from interlock.wire.runner import LogLine

MAX_ERROR = 2_000
MAX_PROGRESS = 500
MAX_EXPLANATION = 131_072
"""Maximum length of a traceback or of the last output in the log."""
MAX_LINES = 524_288
MAX_LINE = 65_536
MAX_LEVEL = 32
MAX_DETAILS = 4_096
"""Maximum length of a traceback in the attempt; all of it is in the log."""

_RAW = msgspec.json.Decoder(msgspec.Raw)
_WORST = 6
"""Maximum bytes of a character in JSON, such as U+001B."""


def whole(text: str) -> str:
    """Return the text with lone surrogates escaped, as from file names."""
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()


def is_whole(text: str) -> bool:
    """Return whether it can be stored unchanged."""
    return text == whole(text)


def is_json(raw: bytes | msgspec.Raw) -> bool:
    """Return whether it is exactly one JSON value."""
    try:
        _RAW.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def fitting(text: str, most: int) -> str:
    """Return a text's end of limited stored size, without credentials."""
    end = whole(blanked(text)[-most:])[-most:]
    if len(msgspec.json.encode(end)) - 2 > most:
        end = end[-(most // _WORST) :]
    return end


def opening(text: str, most: int) -> str:
    """Return a text's beginning of limited stored size, without credentials."""
    start = whole(blanked(text)[:most])[:most]
    if len(msgspec.json.encode(start)) - 2 > most:
        start = start[: most // _WORST]
    return start


def fitting_lines(lines: tuple[LogLine, ...], most: int) -> tuple[LogLine, ...]:
    """Return the last of these lines, within a limit of stored bytes."""
    size = len(msgspec.json.encode(lines))
    while size > most and lines:
        lines = lines[(len(lines) + 1) // 2 :]
        size = len(msgspec.json.encode(lines))
    return lines
