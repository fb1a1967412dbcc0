"""`make check` reads the spelling of every folder but the tests, which misspell words on purpose."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.waiting import PROGRAM_S

ROOT = Path(__file__).parents[2]
NOT_READ = {".ci", ".interlock", "tests", "web"}
"""Of `web`, the sources and their tests are read; the rest is generated or configures other tools."""


def words_of_make_check() -> list[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (line,) = re.findall(r"^\t\$\(BIN\)/codespell (.*)$", makefile, re.M)
    return shlex.split(line)


def test_make_check_reads_every_folder_with_pages_or_sources() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--", "*/*"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("this is no clone, so build products cannot be told from sources")
    folders = {line.partition("/")[0] for line in listed.stdout.splitlines()}
    assert {*words_of_make_check()} == folders - NOT_READ | {"*.md", "web/src", "web/test"}


@pytest.mark.parametrize(
    ("text", "faults"),
    [("Recieve a job.\n", 1), ("Receive befores; iif(fulfilment)\n", 0)],
)
def test_a_misspelt_word_is_noticed_and_a_name_in_the_code_is_not(
    text: str, faults: int, tmp_path: Path
) -> None:
    file = tmp_path / "page.py"
    file.write_text(text, encoding="utf-8")
    program = Path(sys.executable).parent / "codespell"
    done = subprocess.run(
        [program, str(file)], cwd=ROOT, capture_output=True, text=True, timeout=PROGRAM_S, check=False
    )
    assert len(done.stdout.splitlines()) == faults, done.stdout + done.stderr
