"""What somebody else wrote cannot do anything to whoever looks at it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.text import harmless, harmless_lines

ATTACKS = {
    "move the cursor": "\x1b[2A\x1b[2K all green",
    "clear the screen": "\x1b[2J\x1b[H",
    "set the title": "\x1b]0;root\x07",
    "fill the clipboard": "\x1b]52;c;cm0gLXJmIC8=\x07",
    "hide an address": "\x1b]8;;https://evil.example\x1b\\good\x1b]8;;\x1b\\",
    "ask the terminal": "\x1b[6n\x1b[c\x1bP$q\x1b\\",
    "eight bits": "\x9b2J\x9d52;c;eA==\x9c\x90x",
    "overwrite the line": "failed\rpassed",
    "erase": "failed\b\b\b\b\b\bpassed",
    "turn around": "\u202egnp.exe\u2066x",
    "half a sequence": "\x1b[31",
    "a colour that is none": "\x1b[31;2Jm",
    "hide in the dark": "\x1b[8mhidden",
}


@pytest.mark.parametrize("colours", [True, False])
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_terminal_is_given_nothing_to_obey(attack: str, colours: bool) -> None:
    shown = harmless(ATTACKS[attack], colours=colours)
    without_colours = re.sub(r"\x1b\[[0-9;:]*m", "", shown)
    assert not re.search(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", without_colours)
    assert "\x1b[8m" not in shown


def test_colours_are_removed_unless_requested_and_are_reset_at_the_end_of_the_text() -> None:
    text = "\x1b[1;31mred\x1b[0m and \x1b[38:2:1:2:3mmore"
    assert harmless(text, colours=True) == text + "\x1b[0m"
    assert harmless(text) == "red and more"


def test_nothing_is_hidden() -> None:
    assert harmless("failed\rpassed") == "failed␍passed"
    assert harmless("\x1b]0;t\x07") == "␛]0;t␇"
    assert harmless("\u202ex") == "\\u202ex"


def test_tabs_and_printable_text_stay_unchanged() -> None:
    for text in ("plain", "a\tb", "grüße 🎉 日本語", ""):
        assert harmless(text) == text
    assert harmless_lines("a\nb\x1b[2J\n") == "a\nb␛[2J\n"


@given(st.text(st.characters(codec="utf-8")), st.booleans())
def test_no_text_gets_through(text: str, colours: bool) -> None:
    shown = re.sub(r"\x1b\[[0-9;:]*m", "", harmless(text, colours=colours))
    assert not re.search(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]", shown)
