"""The tutorial about load is done as it says: two agents, a web server, one command, and what it leaves."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_S, PROGRAM_S

DOCS = Path(__file__).parents[2] / "docs"
TUTORIAL = (DOCS / "tutorials" / "first-load-test.md").read_text(encoding="utf-8")
AGENT = (DOCS / "guides" / "running-an-agent.md").read_text(encoding="utf-8")
PATIENT = "lead: 500ms\nskew-limit: 60s\nready-within: 60s\noperations: 100\nduration: 60s"
"""For a machine that does something else as well."""


@contextmanager
def running(line: str, folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Start a command of the page in the background; yield the first line that it prints."""
    words = shlex.split(line.removesuffix("&"))
    with subprocess.Popen(words, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline()
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE_S)


def on_a_free_port(line: str) -> str:
    """Return the command with a port that the system chooses."""
    return re.sub(r"\b(7167|7168|8000)\b", "0", line)


@pytest.mark.long  # cli/test_workload_command runs one on agents
def test_the_load_test_of_the_tutorial_is_complete(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "INTERLOCK_URL": "", "PYTHONUNBUFFERED": "1"}
    started = re.findall(r"^((?:interlock agent|python -m http.server) .*&)$", TUTORIAL, re.M)
    (file,) = re.findall(r"^```yaml\n(# homepage.yml\n.*?)^```$", TUTORIAL, re.S | re.M)
    (command,) = re.findall(r"^interlock (workload run .*)$", TUTORIAL, re.M)
    with ExitStack() as stack:
        first, second, server = (
            stack.enter_context(running(on_a_free_port(line), tmp_path, environment)) for line in started
        )
        (promised,) = re.findall(r"^```text\n(.*?)^```$", AGENT, re.S | re.M)
        assert [re.sub(r":\d+", ":7167", line) for line in (first, second)] == [promised, promised]
        agents = [re.findall(r"127\.0\.0\.1:\d+", line)[0] for line in (first, second)]
        port = re.findall(r"port (\d+)", server)[0]
        load = file.replace("8000", port).replace("duration: 5s", PATIENT)
        patient = load.replace("p99_ms: 500", "p99_ms: 60000")
        assert load not in (file, patient)
        (tmp_path / "homepage.yml").write_text(patient, encoding="utf-8")
        words = shlex.split(command)
        words[words.index("--agents") + 1] = ",".join(agents)
        done = subprocess.run(
            ["interlock", *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    for name in re.findall(r"`(results/[a-z.]+)`", TUTORIAL):
        assert (tmp_path / name).stat().st_size > 0
    assert json.loads((tmp_path / "results" / "result.json").read_text())["verdict"] == "COMPLETE"
