"""How all tests are run: patiently, with modules compiled once, in one process more than there are cores.

A test of real processes gets a second try (decision 0276); the run lists who needed one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Said before anybody imports gRPC, which reads it then. With its care for forks a process that has spoken
# gRPC now and then loses a child between fork and exec, or leaves it hanging there with all its pipes open.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

# How long an example takes, or is looked for, says how busy the machine is and nothing about us.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

SAME_EVERY_TIME = frozenset({"bench", "lifecycles", "machine", "tidy", "verify", "wire"})
"""Where nothing depends on a real clock or another process: who fails there once has failed."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What a busy machine did to a test of real processes, it does not do twice; what is broken, is."""
    here = Path(__file__).parent
    for item in items:
        if item.path.relative_to(here).parts[0] not in SAME_EVERY_TIME:
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_configure(config: pytest.Config) -> None:
    """Where bytecode may not lie beside the sources, it lies in the cache of pytest.

    Without it each of the hundreds of processes that tests start would compile the whole package anew.
    """
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        _keep_bytecode_in(config.rootpath / ".pytest_cache" / "bytecode")


def _keep_bytecode_in(folder: Path) -> None:
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(folder)
    sys.dont_write_bytecode = False


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: many tests wait for what they have started, and leave theirs free."""
    return len(os.sched_getaffinity(0)) + 1 if sys.platform == "linux" else (os.cpu_count() or 1) + 1
