"""A worker as a program: `python -m tests.worker.program SOCKET SETTINGS CLOCK`.

The file CLOCK holds by how many seconds the clock for its leases is ahead; a test moves it by writing there.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import msgspec
from tests.worker.process_tasks import REGISTRY
from tests.worker.remote import RemotePort

from interlock.worker import entry
from interlock.worker.environment import WorkerHost
from interlock.worker.host import since_boot
from interlock.worker.settings import WorkerSettings

if __name__ == "__main__":
    path, given, clock = sys.argv[1:]

    def monotonic() -> float:
        return since_boot() + float(Path(clock).read_text())

    vars(entry)["WorkerHost"] = functools.partial(WorkerHost, monotonic=monotonic)
    settings = msgspec.json.decode(given, type=WorkerSettings)
    sys.exit(entry.run_worker(settings, REGISTRY, lambda: RemotePort(path)))
