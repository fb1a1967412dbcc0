"""What a deployment needs: `python -m bench.sizing [JOBS]`, on each store in turn.

One server and one worker with the default settings, as processes of their own. 50,000 jobs, or JOBS, of a
handler that does nothing are submitted in batches of 1,000, and then done. Printed: jobs per second by the
clock, memory of both processes at rest and afterwards, connections, and how much the store has grown.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from interlock.sync import Interlock
from interlock.testing.servers import postgres_server, redis_server
from interlock.wire.jobs import JobSpec

JOBS = 50_000
BATCH = 1_000
PATIENCE_S = 1_200.0
TASKS = """
from interlock import task

@task
async def nothing(number: int) -> None:
    pass
"""
POSTGRES = {"shared_buffers": "512MB"}


class Sizes(NamedTuple):
    """What was measured on one store."""

    store: str
    submitted_per_s: float
    done_per_s: float
    bytes_a_job: float
    server_mb: tuple[float, float]
    worker_mb: tuple[float, float]
    connections: str


def main() -> int:
    """Measure, and print a table."""
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else JOBS
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, {jobs:,} jobs")
    found = []
    with tempfile.TemporaryDirectory() as folder:
        found.append(_measured("SQLite", f"sqlite:///{folder}/jobs.db", jobs))
    with postgres_server(settings=POSTGRES, wal_segment_mb=16) as postgres:
        found.append(_measured("PostgreSQL", postgres.url, jobs))
    with redis_server(append_only="everysec") as redis:
        found.append(_measured("Redis", redis.url, jobs))
    print("| store | submitted | done | growth for a million jobs | server | worker | connections |")
    print("|---|---|---|---|---|---|---|")
    for one in found:
        print(
            f"| {one.store} | {one.submitted_per_s:,.0f}/s | {one.done_per_s:,.0f}/s "
            f"| {one.bytes_a_job:,.0f} MB | {one.server_mb[0]:.0f} → {one.server_mb[1]:.0f} MB "
            f"| {one.worker_mb[0]:.0f} → {one.worker_mb[1]:.0f} MB | {one.connections} |"
        )
    print(f"load at the end {os.getloadavg()[0]:.1f}")
    return 0


def _measured(name: str, url: str, jobs: int) -> Sizes:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "sized.py").write_text(TASKS, encoding="utf-8")
        il = stack.enter_context(Interlock(url))
        server = stack.enter_context(_running(folder, "server", "--port", "0", "--store", url))
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        worker = stack.enter_context(_running(folder, "worker", "start", "sized.py", "--store", url))
        _until_idle(il, il.submit_many(_specs(range(1))))
        resting, before = (_memory_mb(server.pid), _memory_mb(worker.pid)), _status(url, folder)
        _ask(f"{address}/api/queues/pause")
        began = time.monotonic()
        for first in range(0, jobs, BATCH):
            last = il.submit_many(_specs(range(first, min(first + BATCH, jobs))))
        submitted_s = time.monotonic() - began
        began = time.monotonic()
        _ask(f"{address}/api/queues/resume")
        _until_idle(il, last)
        done_s = time.monotonic() - began
        after = _status(url, folder)
        return Sizes(
            store=name,
            submitted_per_s=jobs / submitted_s,
            done_per_s=jobs / done_s,
            bytes_a_job=(after["size_bytes"] - before["size_bytes"]) / jobs,
            server_mb=(resting[0], _memory_mb(server.pid)),
            worker_mb=(resting[1], _memory_mb(worker.pid)),
            connections=str((before.get("connections") or {}).get("ours", "")),
        )


def _specs(numbers: range) -> list[JobSpec]:
    return [JobSpec(task="sized.nothing", input=msgspec.Raw(b'{"number":%d}' % each)) for each in numbers]


def _until_idle(il: Interlock, jobs: list[str]) -> None:
    """Wait until the last of these jobs, and all before it, are done."""
    until = time.monotonic() + PATIENCE_S
    while il.job(jobs[-1]).state != "COMPLETED" or il.jobs("state:pending,running", limit=1)[0]:
        if time.monotonic() > until:
            raise TimeoutError(f"{len(jobs)} jobs were not done within {PATIENCE_S:g} s")
        time.sleep(0.1)


def _ask(address: str) -> None:
    body = json.dumps({"queue": "default"}).encode()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=60).close()


def _status(url: str, folder: Path) -> Any:
    words = [sys.executable, "-m", "interlock", "db", "status", "--store", url, "--json"]
    return json.loads(subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True).stdout)


def _memory_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextmanager
def _running(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "interlock", *words]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


if __name__ == "__main__":
    sys.exit(main())
