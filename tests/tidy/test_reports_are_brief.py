"""A failing test says what was expected and what happened, and not a page of JSON."""

from __future__ import annotations

import pytest
from tests.brief_reports import MAX_LENGTH, MAX_LINES, brief

pytest_plugins = ["pytester"]

WITHOUT = ("-p", "no:asyncio", "-p", "no:schemathesis")
"""Plugins that no test here needs, and that are imported anew each time."""

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
    result = pytester.runpytest(*WITHOUT)
    result.assert_outcomes(failed=1)
    assert len(result.outlines) < 3 * MAX_LINES
    assert all(len(line) < 2 * MAX_LENGTH for line in result.outlines)
    result.stdout.fnmatch_lines(["*assert *rows*", "*line 999*"])


LONG_TEST = "def test_it():\n" + "".join(f"    step_{n} = {n}\n" for n in range(80))
LONG_TEST += "    assert step_0 == 'expected'\n"
IN_A_LIBRARY = """
import asyncio, json
from concurrent.futures import ThreadPoolExecutor

class Thing:
    pass

def read(text, thing):
    return ThreadPoolExecutor(1).submit(json.loads, text).result()

def test_it():
    read("{", Thing())

async def fail():
    raise ValueError("the cause")

async def both():
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(fail())

def test_a_group():
    asyncio.run(both())
"""


def reported(pytester: pytest.Pytester, source: str, **outcomes: int) -> list[str]:
    """Return what pytest prints about tests that fail."""
    pytester.makepyfile(source)
    pytester.makeconftest("from tests.brief_reports import pytest_runtest_makereport")
    result = pytester.runpytest(*WITHOUT)
    result.assert_outcomes(**outcomes)
    return result.outlines


def test_of_a_long_test_the_line_that_failed_is_shown_and_the_lines_before_it(
    pytester: pytest.Pytester,
) -> None:
    lines = reported(pytester, LONG_TEST, failed=1)
    assert any(line.startswith(">") and "step_0 == 'expected'" in line for line in lines)
    assert any(line.startswith("E") and "0 == 'expected'" in line for line in lines)
    assert any("step_79" in line for line in lines)
    assert not any("step_20 " in line for line in lines)
    assert any("lines left out" in line for line in lines)


def test_calls_inside_libraries_and_objects_without_a_value_are_not_shown(pytester: pytest.Pytester) -> None:
    output = "\n".join(reported(pytester, IN_A_LIBRARY, failed=2))
    assert "in read" in output or "def read" in output
    assert "self.scan_once(s, idx)" in output
    assert "JSONDecodeError" in output
    assert "concurrent/futures" not in output
    assert "object at 0x" not in output
    assert "ValueError: the cause" in output
    assert "asyncio/runners.py" not in output
