"""What a deployment needs: `python -m bench.sizing [--keep] [JOBS]`, on each store in turn.

One server and one worker with the default settings, as processes of their own. 50,000 jobs, or JOBS, of a
handler that does nothing are submitted in batches of 1,000, and then done. Printed: jobs per second by the
clock, memory of both processes at rest and afterwards, the connections that both have opened to the store,
and how much the store has grown. With `--keep` the figures go into `bench/sizing.json`, and the table of the
guide "Running in production" is made from them; `tests/bench/test_sizing.py` compares the two.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import msgspec

from interlock.sync import Interlock
from interlock.testing.servers import RedisServer, postgres_server, redis_server
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
BACKENDS = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"


HERE = Path(__file__).parent
KEPT = HERE / "sizing.json"
GUIDE = HERE.parent / "docs" / "guides" / "running-in-production.md"
HEAD = (
    "| store | submitted in batches | done | growth for a million jobs "
    "| server, at rest → afterwards | worker | connections |\n|---|---|---|---|---|---|---|\n"
)
Connections = Callable[[], int | None]


class Sizes(msgspec.Struct, frozen=True):
    """What was measured on one store."""

    store: str
    submitted_per_s: float
    done_per_s: float
    bytes_a_job: float
    server_mb: tuple[float, float]
    worker_mb: tuple[float, float]
    connections: int | None
    """Connections to the store that the server and the worker have opened; None for a file."""


class Sizing(msgspec.Struct, frozen=True):
    """One run, as it is kept."""

    day: date
    jobs: int
    processors: int
    stores: tuple[Sizes, ...]


def main() -> int:
    """Measure, and print a table; with `--keep` write the file and the table of the guide."""
    words = sys.argv[1:]
    keeps = "--keep" in words
    jobs = next((int(word) for word in words if word.isdecimal()), JOBS)
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, {jobs:,} jobs")
    found = []
    with tempfile.TemporaryDirectory() as folder:
        found.append(_measured("SQLite", f"sqlite:///{folder}/jobs.db", jobs, lambda: None))
    with postgres_server(settings=POSTGRES, wal_segment_mb=16) as postgres:
        found.append(
            _measured(
                "PostgreSQL",
                postgres.url,
                jobs,
                lambda: int(postgres.sql(BACKENDS)[0][0] or 0),
            )
        )
    with redis_server(append_only="everysec") as redis:
        found.append(_measured("Redis (in memory)", redis.url, jobs, lambda: _clients(redis)))
    run = Sizing(datetime.now(UTC).date(), jobs, os.cpu_count() or 1, tuple(found))
    print(table(run.stores))
    print(f"load at the end {os.getloadavg()[0]:.1f}")
    if keeps:
        KEPT.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=2) + b"\n")
        GUIDE.write_text(page_with(run, GUIDE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


def kept() -> Sizing:
    """Return the run that is kept."""
    return msgspec.json.decode(KEPT.read_bytes(), type=Sizing)


def table(stores: Sequence[Sizes]) -> str:
    """Return the figures as a table of Markdown."""
    rows = [
        f"| {one.store} | {_rounded(one.submitted_per_s)}/s | {_rounded(one.done_per_s)}/s "
        f"| {_rounded(one.bytes_a_job)} MB | {one.server_mb[0]:.0f} → {one.server_mb[1]:.0f} MB "
        f"| {one.worker_mb[0]:.0f} → {one.worker_mb[1]:.0f} MB "
        f"| {'a file' if one.connections is None else one.connections} |\n"
        for one in stores
    ]
    return HEAD + "".join(rows)


def page_with(run: Sizing, text: str) -> str:
    """Return the guide with the table of this run, and its day and number of jobs."""
    before, head, after = text.partition(HEAD.splitlines()[0])
    if not head:
        raise LookupError(f"{GUIDE.name} has no table of sizes.")
    rest = after.partition("\n\n")[2]
    day = re.sub(r"[\d,]+ jobs whose handler does nothing \([\d-]+", _measured_on(run), before)
    return f"{day}{table(run.stores)}\n{rest}"


def _measured_on(run: Sizing) -> str:
    return f"{run.jobs:,} jobs whose handler does nothing ({run.day}"


def _rounded(value: float) -> str:
    """Return a number with three significant digits."""
    return f"{float(f'{value:.3g}'):,.0f}"


def _clients(redis: RedisServer) -> int:
    answer = redis.run("CLIENT", "LIST")
    assert isinstance(answer, str)
    return len(answer.splitlines())


def _measured(name: str, url: str, jobs: int, connections: Connections) -> Sizes:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "sized.py").write_text(TASKS, encoding="utf-8")
        il = stack.enter_context(Interlock(url))
        il.jobs("state:pending", limit=1)  # the client itself has its connections now
        own = connections()
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
        opened = None if own is None else (connections() or 0) - own
        after = _status(url, folder)
        return Sizes(
            store=name,
            submitted_per_s=jobs / submitted_s,
            done_per_s=jobs / done_s,
            bytes_a_job=(after["size_bytes"] - before["size_bytes"]) / jobs,
            server_mb=(resting[0], _memory_mb(server.pid)),
            worker_mb=(resting[1], _memory_mb(worker.pid)),
            connections=opened,
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
