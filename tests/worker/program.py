"""A worker as a program: `python -m tests.worker.program SOCKET SETTINGS`."""

from __future__ import annotations

import sys

import msgspec
from tests.worker.process_tasks import REGISTRY
from tests.worker.remote import RemotePort

from interlock.worker.entry import run_worker
from interlock.worker.settings import WorkerSettings

if __name__ == "__main__":
    path, settings = sys.argv[1:]
    sys.exit(
        run_worker(msgspec.json.decode(settings, type=WorkerSettings), REGISTRY, lambda: RemotePort(path))
    )
