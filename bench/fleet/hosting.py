"""Many agents in one process, for large fleets on one machine: `python -m bench.fleet.hosting 10`."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

from interlock.agent.server import serving
from interlock.agent.settings import AgentSettings
from interlock.worker.telemetry import make_log

ROOT = Path(__file__).parents[2]
EACH = 10


@contextmanager
def hosted(number: int) -> Iterator[list[str]]:
    """The addresses of so many agents, in as many processes as it takes."""
    counts = [min(EACH, number - first) for first in range(0, number, EACH)]
    hosts = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.fleet.hosting", str(count)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for count in counts
    ]
    try:
        addresses: list[str] = []
        for host in hosts:
            assert host.stdout is not None
            addresses += json.loads(host.stdout.readline())
        yield addresses
    finally:
        for host in hosts:
            host.communicate()


async def _host(number: int) -> None:
    """Serve until whoever started this closes our input."""
    log = make_log("error", "text")
    async with AsyncExitStack() as stack:
        settings = AgentSettings(port=0)
        agents = [await stack.enter_async_context(serving(settings, log)) for _ in range(number)]
        print(json.dumps(agents), flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_host(int(sys.argv[1])))
