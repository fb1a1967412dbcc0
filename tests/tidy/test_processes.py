"""Tests that run in several processes run once each, and end as they would in one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.processes import stretches
from tests.waiting import PROGRAM_S

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[2]
CONFTEST = "from tests.processes import pytest_addoption, pytest_runtestloop"

MANY = """
import os, pathlib, pytest

@pytest.fixture(scope="module")
def place():
    folder = pathlib.Path(os.environ["NOTES"])
    yield folder
    (folder / f"{pathlib.Path(__file__).stem} {os.getpid()}").write_text("torn down")

@pytest.mark.parametrize("number", range(20))
def test_it(place, tmp_path, number):
    print("number", number)
    (place / f"{pathlib.Path(__file__).stem}-{number}").open("x").close()
    assert not list(tmp_path.iterdir())
    assert number != 7
    if number == 8:
        pytest.skip("for a reason")
"""
TOGETHER = (
    """
import pytest
pytestmark = pytest.mark.together("thing")
"""
    + MANY
)
CRASH = """
import os, pytest

@pytest.mark.parametrize("number", range(20))
def test_it(number):
    if number in (3, 4):
        os._exit(9)
"""
AT_EXIT = """
import atexit, os

def test_one():
    atexit.register(os._exit, 9)

def test_two(): ...
"""
WARNING = """
import warnings

def test_one():
    warnings.warn("careful")

def test_two(): ...
"""


@pytest.fixture(autouse=True)
def own_pytest(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("NOTES", str(tmp_path))
    pytester.makeconftest(CONFTEST)


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("--processes", "3", *options, timeout=PROGRAM_S)


def test_each_test_runs_once_with_the_fixtures_of_its_process_and_a_folder_of_its_own(
    pytester: pytest.Pytester, tmp_path: Path
) -> None:
    pytester.makepyfile(test_one=MANY, test_two=MANY, test_three=MANY)
    result = run(pytester, "-rs")
    result.assert_outcomes(passed=54, failed=3, skipped=3)
    result.stdout.fnmatch_lines(["*number 7*", "*for a reason*"])
    notes = sorted(path.name for path in tmp_path.iterdir())
    files = ("one", "three", "two")
    ran = [f"test_{file}-{number}" for file in files for number in range(20)]
    assert sorted(note for note in notes if "-" in note) == sorted(ran)
    torn_down = {note.split()[0] for note in notes if " " in note}
    assert torn_down == {f"test_{file}" for file in files}, "each fixture was torn down"
    assert len({note.split()[1] for note in notes if " " in note}) == 3, "in three processes"


def test_tests_that_share_a_costly_thing_stand_at_the_beginning_of_one_stretch(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeini("[pytest]\nmarkers = together(thing): share a costly thing")
    pytester.makepyfile(test_one=MANY, test_three=MANY, test_two=TOGETHER)
    items, _ = pytester.inline_genitems()
    first, *others = stretches(items, 3)
    assert [items[place].path.stem for place in first[:21]] == ["test_two"] * 20 + ["test_one"]
    assert [len(stretch) for stretch in others] == [13, 14], "the rest is divided evenly"
    assert sorted(first + [place for stretch in others for place in stretch]) == list(range(60))


def test_a_test_that_crashes_its_process_fails_and_all_others_run(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_one=CRASH, test_two=MANY)
    result = run(pytester)
    result.assert_outcomes(passed=36, failed=3, skipped=1)
    result.stdout.fnmatch_lines(["*exit code 9*", "*test_one.py::test_it?3?*"])


def test_a_process_that_crashes_when_all_its_tests_have_passed_is_reported(
    pytester: pytest.Pytester,
) -> None:
    crash_at_exit = "import atexit, os\natexit.register(os._exit, 9)\n"
    pytester.makepyfile(
        "def test_one(): ...\n\ndef test_two():\n    " + crash_at_exit.replace("\n", "\n    ")
    )
    result = run(pytester)
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*exit code 9*"])


def test_the_first_failure_ends_the_run_if_that_is_asked_for(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_one=MANY, test_two=MANY, test_three=MANY)
    result = run(pytester, "-x")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*stopping after*"])


def test_a_warning_reaches_the_summary(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import warnings\n\ndef test_one():\n    warnings.warn('careful')\n\ndef test_two(): ..."
    )
    result = run(pytester)
    result.assert_outcomes(passed=2, warnings=1)
    result.stdout.fnmatch_lines(["*UserWarning: careful*"])
