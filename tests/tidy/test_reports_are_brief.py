"""A failing test says what was expected and what happened, and not a page of JSON."""

from __future__ import annotations

import pytest
from tests.brief_reports import MAX_LENGTH, MAX_LINES, brief

pytest_plugins = ["pytester"]

FAILING = """
def test_it():
    print("\\n".join(f"line {number}" for number in range(1_000)))
    assert {"rows": [{"id": number, "text": "x" * 50} for number in range(500)]} == {"rows": []}
"""


def test_a_short_text_stays_as_it_is() -> None:
    assert brief("one\ntwo") == "one\ntwo"


def test_of_a_long_text_the_beginning_is_kept_or_the_end() -> None:
    text = "\n".join(str(number) for number in range(MAX_LINES + 10))
    assert brief(text).splitlines()[0] == "0"
    assert brief(text).splitlines()[-1] == "… 10 lines left out"
    assert brief(text, last=True).splitlines()[-1] == str(MAX_LINES + 9)
    assert len(brief("x" * 10_000)) < MAX_LENGTH + 40


def test_the_report_of_a_failing_test_fits_on_a_page_also_in_ci(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    pytester.makepyfile(FAILING)
    pytester.makeconftest("from tests.brief_reports import pytest_runtest_makereport")
    result = pytester.runpytest("-p", "no:xdist", "-p", "no:asyncio")
    result.assert_outcomes(failed=1)
    assert len(result.outlines) < 3 * MAX_LINES
    assert all(len(line) < 2 * MAX_LENGTH for line in result.outlines)
    result.stdout.fnmatch_lines(["*assert *rows*", "*line 999*"])
