"""Text for people: plurals, the nearest known name, durations, and untrusted text made safe to print.

A terminal interprets escape sequences: untrusted text can move the cursor, set the title, fill the clipboard
(OSC 52) or hide an address behind a link (OSC 8). `harmless` keeps colours at most and replaces everything
else by a visible sign, including the characters that change the direction of text.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from datetime import timedelta


def counted(number: int, noun: str) -> str:
    """Return the number with its noun, in the plural unless it is 1."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """Return the plural of a regular English noun."""
    return f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2:-1] not in "aeiou" else f"{noun}s"


_NEAR = 0.6


def nearest(name: str, known: Sequence[str]) -> str | None:
    """Return the known name that is most similar, or None."""
    folded = {candidate.casefold(): candidate for candidate in known}
    likeness, best = max(((_likeness(name.casefold(), each), each) for each in folded), default=(0.0, ""))
    return folded[best] if likeness >= _NEAR else None


def _likeness(name: str, candidate: str) -> float:
    """Return how similar two names are, from 0 to 1, without their package."""
    while "." in name and name.partition(".")[0] == candidate.partition(".")[0] and "." in candidate:
        name, candidate = name.partition(".")[2], candidate.partition(".")[2]
    return difflib.SequenceMatcher(None, candidate, name).ratio()


UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(rf"(\d+(?:\.\d+)?)([{''.join(UNITS)}])", re.ASCII)


def read_duration(text: str) -> timedelta:
    """Parse a duration; raise ValueError with the valid forms."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is not a duration; write 90s, 15m, 12h, 30d or 4w")
    try:
        return timedelta(seconds=float(match[1]) * UNITS[match[2]])
    except OverflowError:
        raise ValueError(f"{text!r} is too long") from None


def write_duration(duration: timedelta) -> str:
    """Return a duration as text, in the largest unit with a whole number."""
    seconds = duration.total_seconds()
    if seconds != int(seconds):
        return f"{seconds:.6f}".rstrip("0") + "s"
    for unit, size in reversed(UNITS.items()):
        if seconds and not seconds % size:
            return f"{int(seconds) // size}{unit}"
    return "0s"


_COLOUR = re.compile(r"\x1b\[([0-9;:]{0,40})m")
_CONCEALED = re.compile(r"(^|[;:])0*8($|[;:])")
_RESET = "\x1b[0m"
_SIGNS = {
    **{code: chr(0x2400 + code) for code in range(0x20) if code != ord("\t")},
    0x7F: "\N{SYMBOL FOR DELETE}",
    **{code: f"\\x{code:02x}" for code in range(0x80, 0xA0)},
    **{
        code: f"\\u{code:04x}"
        for code in (0x061C, 0x200E, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
    },
}


def harmless_lines(text: str) -> str:
    """Return a text of several lines without control sequences and colours."""
    return "\n".join(map(harmless, text.split("\n")))


def harmless(text: str, *, colours: bool = False) -> str:
    """Return the text without control sequences; with its colours, if wanted."""
    if text.isprintable():
        return text
    parts = _COLOUR.split(text)  # text and colour codes alternate
    shown = [parts[0].translate(_SIGNS)]
    for numbers, following in zip(parts[1::2], parts[2::2], strict=True):
        if colours and not _CONCEALED.search(numbers):
            shown.append(f"\x1b[{numbers}m")
        shown.append(following.translate(_SIGNS))
    return "".join(shown) + (_RESET if colours and len(parts) > 1 else "")
