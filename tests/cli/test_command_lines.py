"""Every process of a machine can read a command line: passwords do not stay there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.waiting import until_so

URL = "postgresql://clerk:s3cret-pass@127.0.0.1:1/jobs"
"""Nothing listens there: these programs try again for a while."""


@pytest.mark.parametrize("program", ["worker start", "supervisor"])
def test_the_password_of_a_store_is_wiped_from_the_command_line(tmp_path: Path, program: str) -> None:
    (tmp_path / "tasks.py").write_text("from interlock import task\n@task\ndef nothing() -> None: ...\n")
    words = (*program.split(), "tasks.py", "--store", URL)
    process = subprocess.Popen(
        [sys.executable, "-m", "interlock", *words],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    shown = Path(f"/proc/{process.pid}/cmdline")
    try:
        until_so(lambda: "clerk:***********@" in shown.read_text(), "the password is wiped")
        assert "s3cret-pass" not in shown.read_text()
    finally:
        process.kill()
        process.wait()
