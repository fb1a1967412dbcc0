"""Widths of texts, and truncation, without the fonts of the system.

A picture must come out the same on every machine, so widths come from a small table. It holds the
advances of a wide sans (about those of Verdana and DejaVu Sans): with any other font of the stack
the words come out narrower than the room reserved for them, never wider.
"""

from __future__ import annotations

import re
import unicodedata

_EM_BY_GLYPHS = {
    "ijl|'.,:;!I ": 0.33,
    "ft()[]{}/\\J-r": 0.42,
    '"*?_cszkvxyL^°': 0.56,
    "abdeghnopqu0123456789$FTPSEYβ": 0.64,
    "ABKXZVRCU&+<>=~#≤≥·…": 0.75,
    "DGHNOQw→↻": 0.82,
    "mM@%W": 0.99,
}
_EM = {glyph: em for glyphs, em in _EM_BY_GLYPHS.items() for glyph in glyphs}
# Control characters, and those that change the direction of text.
_UNSHOWN = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069]")
_EM_OTHER, _EM_WIDE, _BOLD = 0.72, 1.1, 1.11


def width_px(text: str, size_px: float, *, bold: bool = False) -> float:
    """Return the width of `text`, rounded up."""
    em = sum(_em(glyph) for glyph in text)
    return em * size_px * (_BOLD if bold else 1.0)


def _em(glyph: str) -> float:
    known = _EM.get(glyph)
    if known is not None:
        return known
    if unicodedata.combining(glyph):
        return 0.0
    return _EM_WIDE if unicodedata.east_asian_width(glyph) in "WF" else _EM_OTHER


def format_duration(seconds: float) -> str:
    """Return a duration for people: `30 s`, `2 min`, `1 h`."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:.4g} ms"
    for size, unit, least in ((86_400, "d", 2), (3_600, "h", 1), (60, "min", 2)):
        if seconds >= size * least and seconds % size == 0:
            return f"{seconds / size:.6g} {unit}"
    return f"{seconds:.6g} s"


def first_sentence(doc: str) -> str:
    """Return the first sentence of a docstring, on one line."""
    line = " ".join(doc.split())
    end = line.find(". ")
    return line if end < 0 else line[: end + 1]


def cut(text: str, size_px: float, room_px: float) -> str:
    """Return `text`, shortened with an ellipsis if it does not fit."""
    if width_px(text, size_px) <= room_px:
        return text
    kept = text
    while kept and width_px(kept + "…", size_px) > room_px:
        kept = kept[:-1]
    return kept.rstrip() + "…"


def wrap(text: str, size_px: float, room_px: float, *, rows: int) -> tuple[str, ...]:
    """Return `text` in at most `rows` rows, shortened by an ellipsis."""
    done: list[str] = []
    words = text.split()
    while words and len(done) < rows - 1:
        row = words.pop(0)
        while words and width_px(f"{row} {words[0]}", size_px) <= room_px:
            row = f"{row} {words.pop(0)}"
        done.append(cut(row, size_px, room_px))
    if words:
        done.append(cut(" ".join(words), size_px, room_px))
    return tuple(done)


def one_line(text: str) -> str:
    """Return a name without line breaks, control or direction characters."""
    return _UNSHOWN.sub("\ufffd", " ".join(text.split())) or "·"
