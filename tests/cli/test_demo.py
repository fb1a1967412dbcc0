"""`interlock demo` is the first thing that people run: it must end well, and tell what it says it tells."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.waiting import PROGRAM_S

from interlock.systems.runs.workflows.planner import plan_of
from interlock.systems.runs.workflows.workflow import read_workflow
from interlock.wire.runs import Source


def test_the_demo_succeeds_and_prints_how_the_job_of_a_killed_worker_recovers(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "interlock", "demo"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
        env={**os.environ, "INTERLOCK_URL": "redis://nobody.invalid:1/0"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    output = done.stdout
    assert "kill -9" in output
    assert "lease_expired" in output
    assert "RUNNING → STALE" in output
    assert "studio.archive  CANCELED" in output
    assert "studio.retouch  FAILED TIMED_OUT" in output
    assert "It ended COMPLETED" in output
    assert "0 of them wrong" in output
    assert list(tmp_path.iterdir()) == []


WORKFLOW = """\
jobs:
  lint: {steps: [{run: test -e README}]}
  flaky: {needs: lint, retries: 1, steps: [{run: test "$INTERLOCK_ATTEMPT" -gt 1}]}
"""


def test_a_repository_is_evaluated_by_runners_of_its_own(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        named = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        subprocess.run(["git", *named, *words], cwd=tmp_path, check=True)

    (tmp_path / ".interlock").mkdir()
    (tmp_path / ".interlock" / "ci.yml").write_text(WORKFLOW)
    (tmp_path / "README").write_text("here")
    git("init", "--quiet", "--initial-branch=main")
    git("add", "--all")
    git("commit", "--quiet", "--message=all")
    done = subprocess.run(
        [sys.executable, "-m", "interlock", "demo", "--repository", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
        env={**os.environ, "INTERLOCK_URL": "redis://nobody.invalid:1/0"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "✓ lint" in done.stdout
    assert "flaky was tried 2 times" in done.stdout


def test_the_workflow_of_this_repository_is_one() -> None:
    text = (Path(__file__).parents[2] / ".interlock" / "ci.yml").read_text(encoding="utf-8")
    plan = plan_of(read_workflow(text, "ci.yml"), Source())
    assert {"lint", "test (decide)", "flaky", "ready"} <= {job.name for job in plan.jobs}
