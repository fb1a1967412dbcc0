"""Processes that are forked from one with everything imported.

Starting one takes a few milliseconds, so that a process that is killed a thousand times spends its life at
work and not in imports. A forked process dies with its parent, also if that was killed.
"""

from __future__ import annotations

import ctypes
import os
import signal
from multiprocessing import get_context

PRELOADED = [
    "anyio._backends._asyncio",
    "interlock_verification.chaos.system.tasks",
    "httpcore2",
    "interlock.cli.nouns.worker_start_burst",
    "interlock.cli.connection",
    "interlock.cli.project_ci",
    "interlock.cli.main",
    "interlock.cli.server",
    "interlock.cli.nouns.worker_start",
    "interlock.cli.nouns.workers",
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
    """Have the kernel kill this process when its parent ends.

    So a killed harness leaves no process.
    """
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended just now, before the kernel knew the request
        os._exit(1)
