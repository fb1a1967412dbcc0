"""`python -m bench.jobs.peers NAME` answers the bench; with `work WORKER` behind it, it is a worker."""

from __future__ import annotations

import sys
from importlib import import_module

from bench.jobs.peers.adapter import serve


def main(name: str, *worker: str) -> None:
    """Only the module of this contender is imported: the others' packages are not here."""
    module = import_module(f"bench.jobs.peers.{name}")
    if worker:
        module.work(worker[1])
    else:
        serve(module.Contender())


if __name__ == "__main__":
    main(*sys.argv[1:])
