"""Stores of earlier schemas open, migrate, also under a worker of that time, and go on.

The stores were made by the code of those days: see `tests/fixtures/stores/make.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import runpy
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import asyncpg
import pytest
from redis import Redis
from tests.waiting import PATIENCE_S, PROGRAM_S, until

from interlock.client import Interlock
from interlock.engine.audit import audit
from interlock.errors import SchemaMismatch
from interlock.store.contract import Store
from interlock.store.records import Query
from interlock.store.urls import store_for
from interlock.systems.catalogue import CATALOGUE, JOURNALLED
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.systems.runtime import Runtime
from interlock.systems.settings import DEFAULT_SETTINGS, Settings
from interlock.testing.at_work import QUICK
from interlock.testing.binaries import environment, postgres_programs
from interlock.testing.servers import PostgresServer, RedisServer
from interlock.wire.runner import ClaimRequest, Complete, Succeeded
from interlock.worker.process import WorkerProcess
from interlock.worker.settings import WorkerSettings
from interlock.worker.tasks import DEFAULT
from interlock.worker.telemetry import make_log

STORES = Path(__file__).parents[1] / "fixtures" / "stores"
RESTORED = sorted(path.name.removesuffix(".txt") for path in STORES.glob("*.txt"))
REFUSED = [name for name in RESTORED if name.startswith("development") and name.endswith("postgres")]
OPENED = [name for name in RESTORED if name not in REFUSED]
SCHEMA_7 = "13ed4bb"
"""The commit whose code made the stores of schema 7."""
PLACES_IN_BODIES = "c62b56f3"
"""The last commit whose jobs of runs have their place in the body."""
ENDED = {"CANCELED": 1, "COMPLETED": 4, "FAILED": 1}
TIMED_OUT = {"CANCELED": 2, "COMPLETED": 3, "FAILED": 1}
"""The same in a store that is older than a day: its running job has used up its time."""

Restore = Callable[[str], str]


@pytest.fixture
def restore(
    postgres: PostgresServer, redis: RedisServer, databases: Iterator[int], tmp_path: Path
) -> Restore:
    """Makes a store again as it was; returns its URL."""

    def restored(name: str) -> str:
        path = STORES / f"{name}.txt"
        if name.endswith("sqlite"):
            with closing(sqlite3.connect(tmp_path / "old.db")) as connection:
                connection.executescript(path.read_text(encoding="utf-8"))
            return f"sqlite:///{tmp_path / 'old.db'}"
        if name.endswith("postgres"):
            url, programs = postgres.new_database(template="template0"), postgres_programs()
            subprocess.run(
                [programs.path("psql"), "-qX", "-v", "ON_ERROR_STOP=1", "-f", str(path), url],
                env=environment(programs.environment),
                check=True,
                stdout=subprocess.DEVNULL,
                timeout=PROGRAM_S,
            )
            return url
        url = redis.url.replace("db=0", f"db={next(databases)}")
        with Redis.from_url(url) as client:
            for line in path.read_text(encoding="utf-8").splitlines():
                client.execute_command(*json.loads(line))
        return url

    return restored


@pytest.fixture(scope="session")
def databases() -> Iterator[int]:
    """Numbers of databases of Redis that no other test uses."""
    return iter(range(511, 400, -1))


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = store_for(url, CATALOGUE)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def jobs(store: Store) -> dict[str, int]:
    return (await store.status()).records["job"]


@pytest.mark.parametrize("name", OPENED)
async def test_a_store_of_an_earlier_schema_is_migrated_and_its_work_continues(
    name: str, restore: Restore
) -> None:
    url = restore(name)
    runpy.run_path(str(STORES / "shop.py"), run_name="shop")
    settings = Settings(durations=QUICK)
    worker = WorkerProcess(
        WorkerSettings(name="test", durations=QUICK, stop_grace_s=1.0, log_level="error"),
        DEFAULT,
        lambda: EmbeddedOrchestrator(url, settings=settings),
        incarnation="0",
        log=make_log("error", "text"),
    )
    async with opened(url) as store:
        status = await store.status()
        assert status.schema_version == status.wanted_version
        assert await jobs(store) == {"CANCELED": 1, "COMPLETED": 1, "FAILED": 1, "PENDING": 2, "RUNNING": 1}
        running = asyncio.create_task(worker.run())
        try:
            await until(lambda: _is_over(store), "every job has ended", story=lambda: str(running))
        finally:
            worker.shutdown.hurry()
            await asyncio.wait([running])
        running.result()
        ended = await jobs(store)
        assert ended in (ENDED, TIMED_OUT)
        found = await audit(store, JOURNALLED, ["job"])
        assert (found.records, found.faults) == (6, [])


async def _is_over(store: Store) -> bool:
    return not (await jobs(store)).keys() & {"PENDING", "RUNNING"}


@pytest.mark.parametrize("name", [name for name in OPENED if name.startswith("schema-10")])
async def test_hashes_that_an_earlier_version_could_write_are_ignored(name: str, restore: Restore) -> None:
    url = restore(name)
    await _write_hashes(url)
    async with opened(url) as store, Interlock(url) as il:
        pending = (await store.find(Query(kind="job", states=("PENDING",)))).records[0]
        await il.cancel(pending.id)
        feed = await store.feed()
        assert pending.id in {entry.id for entry in feed.entries}
        assert (await audit(store, JOURNALLED, ["job"])).faults == []


async def _write_hashes(url: str) -> None:
    """Write hashes as a program with a chained journal did; the SQL stores let no entry be rewritten."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
            connection.execute("UPDATE records SET chain = 'c0ffee'")
    elif url.startswith("postgres"):
        shell: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(url)
        await shell.execute("UPDATE interlock.record SET chain = 'c0ffee'")
        await shell.close()
    else:
        with Redis.from_url(url) as client:
            for key in client.scan_iter("*:record:*"):
                client.hset(key, "chain", "c0ffee")
            [journal] = client.scan_iter("*:journal")
            entries = client.xrange(journal)
            client.delete(journal)
            for cursor, fields in entries:
                client.xadd(journal, {**fields, b"chain": b"c0ffee"}, cursor)


def source_of(commit: str, folder: Path) -> Path:
    """Return the code of an earlier commit."""
    words = ["git", "-C", str(STORES.parents[2]), "archive", "--output", str(folder / "old.tar")]
    found = subprocess.run(
        [*words, f"{commit}:src"], capture_output=True, text=True, timeout=PROGRAM_S, check=False
    )
    if found.returncode:
        pytest.xfail(f"This copy has no history to take the old version from: {found.stderr.strip()}")
    with tarfile.open(folder / "old.tar") as archive:
        archive.extractall(folder / "src", filter="data")
    return folder / "src"


@pytest.fixture(scope="session")
def old_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code that made the stores of schema 7."""
    return source_of(SCHEMA_7, tmp_path_factory.mktemp("old"))


@pytest.mark.long  # the next test has a worker of the old version
async def test_a_worker_of_the_old_version_finds_nothing_in_a_store_of_another_layout(
    restore: Restore, old_source: Path
) -> None:
    """It does not know that it must not write, so there is nothing that it could take or change."""
    url = restore("schema-7.redis")
    tasks = runpy.run_path(str(STORES / "shop.py"), run_name="shop")
    async with opened(url) as store, Interlock(url) as il:
        await il.submit(tasks["greet"], name="Dee")
        before, journal = await jobs(store), await store.feed()
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", OLD_PROGRAM],
            env={**os.environ, "PYTHONPATH": str(old_source), "INTERLOCK_URL": url},
            cwd=STORES,
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
            check=False,
        )
        assert done.stdout == "[]\nIllegal\n[]\n0\n", done.stderr
        assert (await jobs(store), await store.feed()) == (before, journal)


OLD_PROGRAM = """
import asyncio, os
from datetime import timedelta
from interlock.store.records import Change, Claim, Commit
from interlock.store.redis import scripts
from interlock.store.urls import store_for
from interlock.systems.catalogue import CATALOGUE

async def main():
    store = store_for(os.environ["INTERLOCK_URL"], CATALOGUE)
    store._links.unlock()  # it was open before the store was migrated
    print(await store.claim(Claim(kind="job", queues=("default",), limit=10), lambda records, now: []))
    change = Change(kind="job", id="j_1", expected=0, state="PENDING", body=b"{}", queue="default")
    [outcome] = await store.commit([Commit(changes=(change,))])
    print(type(outcome).__name__)
    print(await store.due(["job"], 10, lambda records, now: []))
    pruned = await store.prune(kind="job", states=("COMPLETED",), older_than=timedelta(0))
    print(pruned.records)
    await store.close()

asyncio.run(main())
"""
"""What a program does that has opened the store before it was migrated."""


async def test_a_worker_of_the_old_version_stops_when_its_store_is_migrated_and_a_new_one_continues(
    restore: Restore, old_source: Path
) -> None:
    url = restore("schema-7.postgres")
    tasks = runpy.run_path(str(STORES / "shop.py"), run_name="shop")
    environment = {**os.environ, "INTERLOCK_URL": url}
    start = [sys.executable, "-m", "interlock.cli.main", "worker", "start", "shop.py"]
    old = {**environment, "PYTHONPATH": str(old_source)}
    worker = subprocess.Popen(start, env=old, cwd=STORES, stderr=subprocess.PIPE, text=True)
    workers: list[subprocess.Popen[str]] = [worker]
    try:
        assert worker.stderr is not None
        lines = iter(worker.stderr.readline, "")
        assert any("task_state_transition" in line for line in lines), "It works on what is there."
        async with opened(url) as store, Interlock(url) as il:
            status = await store.status()
            assert status.schema_version == status.wanted_version
            job = await il.submit(tasks["greet"], name="Dee")
            reported = asyncio.to_thread(lambda: any("Upgrade this program" in line for line in lines))
            assert await asyncio.wait_for(reported, PATIENCE_S), "It says why it has ended."
            workers.append(
                subprocess.Popen(start, env=environment, cwd=STORES, stderr=subprocess.DEVNULL, text=True)
            )
            assert await job.result(timeout_s=PATIENCE_S) == "Hello Dee"
    finally:
        for each in workers:
            each.kill()
            each.communicate()


@pytest.mark.parametrize("name", REFUSED)
async def test_opening_a_development_schema_that_was_changed_in_place_raises_schema_mismatch(
    name: str, restore: Restore
) -> None:
    url = restore(name)
    with pytest.raises(SchemaMismatch, match=r"development version.*changed in place.*Nothing was changed"):
        async with opened(url):
            pass


OLD_RUN = """
import asyncio, os
import msgspec
from interlock.store.urls import store_for
from interlock.systems.catalogue import CATALOGUE
from interlock.systems.runtime import Runtime
from interlock.systems.settings import DEFAULT_SETTINGS
from interlock.wire.runner import ClaimRequest, Complete, Succeeded
from interlock.wire.runs import Plan, PlannedJob, RunSpec

def layer(name, *needs):
    return [PlannedJob(name=f"{name}{n}", task="noop", needs=needs) for n in range(3)]

async def main():
    store = store_for(os.environ["INTERLOCK_URL"], CATALOGUE)
    await store.open()
    here = Runtime(store, DEFAULT_SETTINGS)
    here.runs.prompt = False
    jobs = [*layer("a"), *layer("b", "a0", "a1", "a2")]
    run = await here.runs.submit(RunSpec(plan=Plan(jobs=tuple(jobs))))
    while await here.runs.keep():
        pass
    grants = await here.orchestrator.claim(ClaimRequest(runner_id="r", limit=3))
    ends = [Complete(token=grant.token, runner_id="r", outcome=Succeeded()) for grant in grants]
    await here.orchestrator.report(ends[:2])
    await here.close()
    print(run.id, ends[2].token)

asyncio.run(main())
"""
"""Leaves a run of which two jobs have ended, one runs and three wait; the run has not heard of the ends."""


async def test_a_run_that_was_under_way_in_the_old_version_continues(tmp_path: Path) -> None:
    """Its jobs have their place in the body, and its messages name one job each."""
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    old = {**os.environ, "PYTHONPATH": str(source_of(PLACES_IN_BODIES, tmp_path)), "INTERLOCK_URL": url}
    words = [sys.executable, "-c", OLD_RUN]
    left = subprocess.run(words, env=old, check=True, stdout=subprocess.PIPE, text=True, timeout=PROGRAM_S)
    run_id, token = left.stdout.split()
    async with opened(url) as store:
        here = Runtime(store, DEFAULT_SETTINGS)
        here.runs.prompt = False
        ends, run = [Complete(token=token, runner_id="r", outcome=Succeeded())], await here.runs.view(run_id)
        while run.outcome is None:  # a lease that has ended meanwhile is given again
            await here.orchestrator.report(ends)
            await here.orchestrator.sweep()
            await here.runs.keep()
            grants = await here.orchestrator.claim(ClaimRequest(runner_id="r", limit=10))
            ends = [Complete(token=grant.token, runner_id="r", outcome=Succeeded()) for grant in grants]
            run = await here.runs.view(run_id)
        assert (run.outcome, run.tally) == ("SUCCESS", {"COMPLETED": 6})
        assert (await audit(store, JOURNALLED, ["job", "run"])).faults == []
