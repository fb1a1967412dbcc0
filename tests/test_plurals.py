"""Numbers of things in sentences."""

from __future__ import annotations

import pytest

from interlock.text import counted


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (0, "job", "0 jobs"),
        (1, "job", "1 job"),
        (2, "job", "2 jobs"),
        (1234, "byte", "1,234 bytes"),
        (1, "entry", "1 entry"),
        (2, "entry", "2 entries"),
        (2, "day", "2 days"),
    ],
)
def test_one_thing_is_not_several(number: int, noun: str, text: str) -> None:
    assert counted(number, noun) == text
