"""Agents of tests are forked from a process that has imported everything.

A fresh one needs a second of processor time before it listens, and most tests of fleets start several.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, cast

from tests.programs import Program

from interlock.testing.agent_process import AgentProcess


def fork_agents() -> None:
    """Start agents as the programs of other tests are started, in this process."""
    AgentProcess.launch = staticmethod(_launch)  # type: ignore[method-assign]


def _launch(
    words: Sequence[str], folder: Path, env: Mapping[str, str], log: IO[bytes]
) -> subprocess.Popen[str]:
    forked = Program(*words, folder=folder, environment=env, stderr=log, new_session=True)
    return cast("subprocess.Popen[str]", forked)
