"""Processes that are forked from one that has everything imported already.

To start one costs a few milliseconds, so that what is killed a thousand times spends its life at work
and not in imports. Whoever is forked dies with whoever forked it, also when that was killed.
"""

from __future__ import annotations

import ctypes
import os
import signal
from multiprocessing import get_context

PRELOADED = [
    "anyio._backends._asyncio",
    "interlock_verification.chaos.system.errands",
    "httpcore2",
    "interlock.cli.worker_burst",
    "interlock.cli.connection",
    "interlock.cli.connection",
    "interlock.cli.project_ci",
    "interlock.cli.main",
    "interlock.cli.worker_processes",
    "interlock.engine.unit_of_work",
    "interlock.engine.audit",
    "interlock.remote.workers",
    "interlock.server.sockets",
    "interlock.store.postgres",
    "interlock.store.redis",
    "interlock.store.sqlite",
    "interlock.systems.embedded",
    "interlock.testing.servers",
    "interlock.worker.entry",
    "interlock.worker.http",
]

FORKS = get_context("forkserver")
FORKS.set_forkserver_preload(PRELOADED)

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """The kernel kills this process when its parent is gone; nothing is left behind by a killed harness."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it went just now, and the kernel has not seen us ask
        os._exit(1)
