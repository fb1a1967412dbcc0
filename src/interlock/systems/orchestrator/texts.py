"""Text from outside, made fit to be stored: whole characters, and not too many of them."""

from __future__ import annotations

import msgspec

from interlock.wire.credentials import blanked
from interlock.wire.runner import Complete, Failed, Heartbeat, LogLine, Message, Release, Succeeded

MAX_ERROR = 2_000
MAX_PROGRESS = 500
MAX_EXPLANATION = 131_072
"""How much of a traceback or of the last output is kept in the log."""
MAX_LINES = 524_288
MAX_LINE = 65_536
MAX_LEVEL = 32
MAX_DETAILS = 4_096
"""How much of a traceback stays with the attempt; all of it is in the log."""

_RAW = msgspec.json.Decoder(msgspec.Raw)
_WORST = 6
"""How many bytes JSON needs for a character at worst: \\u001b."""


def whole(text: str) -> str:
    """The text with halves of characters spelled out; file names and wild output have such."""
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()


def is_whole(text: str) -> bool:
    """Whether it can be stored as it is."""
    return text == whole(text)


def is_json(raw: bytes | msgspec.Raw) -> bool:
    """Whether it is one value, and nothing beside it."""
    try:
        _RAW.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def fitting(text: str, most: int) -> str:
    """The end of a text without credentials, in whole characters: at most so many bytes are stored."""
    end = whole(blanked(text)[-most:])[-most:]
    if len(msgspec.json.encode(end)) - 2 > most:
        end = end[-(most // _WORST) :]
    return end


def opening(text: str, most: int) -> str:
    """The beginning of a text without credentials, in whole characters: at most so many bytes are stored."""
    start = whole(blanked(text)[:most])[:most]
    if len(msgspec.json.encode(start)) - 2 > most:
        start = start[: most // _WORST]
    return start


def fitting_lines(lines: tuple[LogLine, ...], most: int) -> tuple[LogLine, ...]:
    """The last of these lines, of which at most so many bytes are stored."""
    size = len(msgspec.json.encode(lines))
    while size > most and lines:
        lines = lines[(len(lines) + 1) // 2 :]
        size = len(msgspec.json.encode(lines))
    return lines


def cleaned(message: Message) -> Message:
    """The message with all its text fit to be stored, but for its lines, which are looked at apart."""
    match message:
        case Complete(outcome=Succeeded()):
            return message  # most of what is said; the others cost more to tell apart
        case Complete(outcome=Failed() as failed):
            told = msgspec.structs.replace(
                failed,
                error=opening(failed.error, MAX_ERROR),
                exception=opening(failed.exception, MAX_ERROR),
                details=fitting(failed.details, MAX_EXPLANATION),
            )
            return msgspec.structs.replace(message, outcome=told)
        case Heartbeat(progress=progress) if progress is not None and progress.message:
            told_progress = msgspec.structs.replace(progress, message=opening(progress.message, MAX_PROGRESS))
            return msgspec.structs.replace(message, progress=told_progress)
        case Release(reason=reason):
            return msgspec.structs.replace(message, reason=opening(reason, MAX_ERROR))
        case _:
            return message
