"""Text that somebody else wrote, made harmless to look at.

A terminal obeys what it is shown: it moves its cursor over what was there, sets its title, fills the
clipboard (OSC 52), hides an address behind a link (OSC 8), and answers as if somebody had typed. Only
colours may stay. Everything else that is not text is shown as a sign for it, so that nothing is hidden
either; that includes the characters that turn the direction of what follows them.
"""

from __future__ import annotations

import re

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
    """The same for a text of several lines, without colours."""
    return "\n".join(map(harmless, text.split("\n")))


def harmless(text: str, *, colours: bool = False) -> str:
    """The text without anything that a terminal would obey; with its colours, if they are wanted."""
    if text.isprintable():
        return text
    parts = _COLOUR.split(text)  # text and the numbers of a colour by turns
    shown = [parts[0].translate(_SIGNS)]
    for numbers, following in zip(parts[1::2], parts[2::2], strict=True):
        if colours and not _CONCEALED.search(numbers):
            shown.append(f"\x1b[{numbers}m")
        shown.append(following.translate(_SIGNS))
    return "".join(shown) + (_RESET if colours and len(parts) > 1 else "")
