"""The page about `interlock dev` is done as it says: it is started, and what it says is typed meanwhile."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_S, PROGRAM_S

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "see-it-all-on-one-machine.md"
ADDRESS = "http://127.0.0.1:8088"


def blocks(pattern: str) -> list[str]:
    return re.findall(pattern, PAGE.read_text(encoding="utf-8"), re.S | re.M)


@contextmanager
def started(folder: Path, environment: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """The first command of the page, on a port that is free; its address, and all that it said."""
    (command,) = blocks(r"^```sh\n(interlock dev [^\n]*)\n```$")
    process = subprocess.Popen(
        [*command.split(), "--port", "0"], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        output = ""
        while "  first " not in output and (line := process.stdout.readline()):
            output += line
        found = re.search(r"http://\S+", output)
        assert found, output
        yield process, found[0], output
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)  # so that its worker goes as well
        process.communicate(timeout=PATIENCE_S)


@pytest.mark.long  # cli/test_dev.py starts and follows it
def test_the_commands_on_the_page_succeed_while_interlock_dev_is_running(tmp_path: Path) -> None:
    (tmp_path / "kitchen.py").write_text(blocks(r"^```python\n(.*?)^```$")[0], encoding="utf-8")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "INTERLOCK_URL": "", "NO_COLOR": "1"}
    with started(tmp_path, environment) as (process, url, output):
        (promised,) = blocks(r"^```text\n(.*?)^```$")
        assert names_in(output) == names_in(promised)
        for block in blocks(r"^<!-- while it runs -->\n```sh\n(.*?)^```$"):
            typed = block.replace(ADDRESS, url)
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", typed],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=PROGRAM_S,
                check=False,
            )
            assert done.returncode == 0, f"{typed}\n{done.stdout}{done.stderr}"
        assert "CANCELED" in done.stdout
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE_S) == 0


def names_in(output: str) -> list[str]:
    """The first word of each line that has one, in order."""
    return re.findall(r"^  (\w+)  ", output, re.M)
