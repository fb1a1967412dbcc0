"""Widths, durations and cutting."""

from __future__ import annotations

import pytest

from interlock.machine.draw.text import cut, first_sentence, format_duration, one_line, width_px, wrap


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.25, "250 ms"),
        (0, "0 s"),
        (1.5, "1.5 s"),
        (30, "30 s"),
        (60, "60 s"),
        (90, "90 s"),
        (120, "2 min"),
        (3600, "1 h"),
        (5400, "90 min"),
        (86_400, "24 h"),
        (7 * 86_400, "7 d"),
    ],
)
def test_durations_are_formatted_with_a_readable_unit(seconds: float, words: str) -> None:
    assert format_duration(seconds) == words


def test_wide_letters_need_more_room_than_narrow_ones() -> None:
    assert width_px("WWWW", 10) > width_px("abcd", 10) > width_px("iiii", 10)
    assert width_px("abc", 10, bold=True) > width_px("abc", 10)
    assert width_px("状態", 10) > 20
    assert width_px("e\u0301", 10) == width_px("e", 10)


def test_a_text_is_cut_only_when_it_does_not_fit() -> None:
    assert cut("short", 10, 100) == "short"
    long = cut("a rather long sentence", 10, 80)
    assert long.endswith("…")
    assert width_px(long, 10) <= 80


def test_wrapping_keeps_all_words_up_to_the_row_limit_and_then_ends_with_an_ellipsis() -> None:
    words = "one two three four five six"
    rows = wrap(words, 10, 70, rows=9)
    assert " ".join(rows) == words
    assert len(rows) > 1
    assert len(wrap(words, 10, 70, rows=2)) == 2
    assert wrap(words, 10, 70, rows=2)[-1].endswith("…")
    assert wrap("", 10, 70, rows=2) == ()


def test_a_docstring_gives_its_first_sentence_on_one_line() -> None:
    assert first_sentence("One thing,\n    said. And more.") == "One thing, said."
    assert first_sentence("No full stop") == "No full stop"


def test_a_name_of_nothing_but_space_still_shows() -> None:
    assert one_line("a\nb\t c") == "a b c"
    assert one_line(" \n") == "·"


def test_a_name_cannot_hide_or_turn_the_text_around_it() -> None:
    assert one_line("a\x00b\u202ec") == "a\ufffdb\ufffdc"
