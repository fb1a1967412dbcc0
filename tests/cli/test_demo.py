"""`interlock demo` is the first thing that people run: it must end well, and tell what it says it tells."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_the_demo_ends_well_and_tells_the_story_of_the_killed_worker(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "interlock.cli.main", "demo"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "INTERLOCK_URL": "redis://nobody.invalid:1/0"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout
    assert "kill -9" in said
    assert "lease_expired" in said
    assert "RUNNING → STALE" in said
    assert "studio.archive  CANCELED CANCELED" in said
    assert "studio.retouch  FAILED TIMED_OUT" in said
    assert "It ended COMPLETED" in said
    assert "0 of them wrong" in said
    assert list(tmp_path.iterdir()) == []
