"""What the page about fleets says is done: its file, on two real agents, with its own command."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.systems.fleet.fleets import fleet
from tests.waiting import PROGRAM_S

from interlock.systems.fleet.workload_file import WORKLOAD_FILE, read_workload
from interlock.systems.runs.workflows.workflow import read_workflow

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guides" / "fleet.md").read_text(encoding="utf-8")


def block(name: str) -> str:
    """The file of that name that the page shows."""
    found = re.search(rf"^```yaml\n(# {re.escape(name)}\n.*?)^```$", PAGE, re.S | re.M)
    assert found
    return found[1]


@pytest.mark.long  # cli/test_workload_command runs one on agents
def test_the_workload_of_the_page_runs_on_two_agents(tmp_path: Path) -> None:
    patient = "lead: 500ms\nskew-limit: 60s\nready-within: 60s\noperations: 100\nduration: 60s"
    (tmp_path / "load.yml").write_text(block("load.yml").replace("duration: 5s", patient))
    (command,) = re.findall(r"^interlock (workload run .*)$", PAGE, re.M)
    with fleet(tmp_path / "agents", [{}, {}]) as agents:
        words = shlex.split(command)
        words[words.index("--agents") + 1] = ",".join(agent.address for agent in agents)
        script = Path(sys.executable).with_name("interlock")
        done = subprocess.run(
            [script, *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    for name in re.findall(r"^\* `([a-z.]+)`", PAGE, re.M):
        assert (tmp_path / "results" / name).stat().st_size > 0
    assert json.loads((tmp_path / "results" / "result.json").read_text())["verdict"] == "COMPLETE"


def test_the_page_has_every_key_of_a_workload_file_and_no_other() -> None:
    keys = re.findall(r"^\| `([a-z-]+)` \|", PAGE, re.M)
    assert sorted(keys) == sorted(field.name for field in WORKLOAD_FILE.fields)


@pytest.mark.parametrize("page", ["tutorials/first-load-test.md", "coming-from/locust-and-k6.md"])
def test_the_workloads_of_other_pages_can_be_read(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    (file,) = re.findall(r"^```yaml\n(.*?)^```$", text, re.S | re.M)
    assert read_workload(file, agents=["127.0.0.1:7167"]).kind == "http"


def test_the_workflow_of_the_page_can_be_read() -> None:
    assert read_workflow(block(".interlock/load.yml")).jobs["load"].task == "interlock.workload"
