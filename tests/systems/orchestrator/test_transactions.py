"""Jobs in a transaction of the user: there when it is committed, never there when it is rolled back."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from tests.clocks import move_sqlite
from tests.effort import further

from interlock import Interlock, JobSpec, sync
from interlock.errors import (
    ConflictingCompletion,
    InvalidArguments,
    InvalidJob,
    LeaseExpired,
    RequestIdReused,
    StoreUnavailable,
    UnknownLease,
)
from interlock.testing.servers import PostgresServer
from interlock.wire.runner import ClaimRequest, Complete, Grant, Heard, Heartbeat, Succeeded
from interlock.worker.context import Context

ASYNC = ("asyncpg", "psycopg", "psycopg, autocommit", "sqlalchemy session", "sqlalchemy connection")
SYNC = ("psycopg", "sqlalchemy", "sqlite3", "sqlalchemy, sqlite")


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    """An empty database."""
    return postgres.new_database()


@asynccontextmanager
async def begun(driver: str, url: str) -> AsyncIterator[Any]:
    """A transaction of this driver; what is raised in it rolls it back."""
    async with contextlib.AsyncExitStack() as stack:
        if driver == "asyncpg":
            connection = await asyncpg.connect(url)
            stack.push_async_callback(connection.close)
            await stack.enter_async_context(connection.transaction())
            yield connection
        elif driver.startswith("psycopg"):
            autocommit = "autocommit" in driver
            made = await psycopg.AsyncConnection.connect(url, autocommit=autocommit)
            pg = await stack.enter_async_context(made)
            if autocommit:
                await stack.enter_async_context(pg.transaction())
            yield pg
        else:
            engine = create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"))
            stack.push_async_callback(engine.dispose)
            if driver == "sqlalchemy session":
                session = await stack.enter_async_context(AsyncSession(engine))
                await stack.enter_async_context(session.begin())
                yield session
            else:
                yield await stack.enter_async_context(engine.begin())


@contextmanager
def begun_sync(driver: str, url: str) -> Iterator[Any]:
    with contextlib.ExitStack() as stack:
        if driver == "psycopg":
            yield stack.enter_context(psycopg.connect(url))
        elif driver == "sqlite3":
            connection = stack.enter_context(contextlib.closing(sqlite3.connect(_file(url))))
            connection.row_factory = lambda _, row: {"whatever": row}
            stack.enter_context(connection)
            yield connection
        else:
            way = f"sqlite:///{_file(url)}" if "sqlite" in driver else url.replace(":", "+psycopg:", 1)
            engine = sqlalchemy.create_engine(way)
            stack.callback(engine.dispose)
            session = stack.enter_context(Session(engine))
            with session.begin():
                yield session


def _file(url: str) -> str:
    return url.removeprefix("sqlite:///")


class RolledBack(Exception):
    """The user changes their mind."""


@pytest.mark.parametrize("driver", ASYNC)
async def test_a_job_is_there_when_the_transaction_is_committed_and_not_before(driver: str, url: str) -> None:
    async with Interlock(url) as il:
        waiting = asyncio.create_task(il.wait(await il_woken(il), timeout_s=60))
        async with begun(driver, url) as transaction:
            within = il.within(transaction)
            first = await within.submit("shop.send", address="a@b")
            more = await within.submit_many([JobSpec(task="t", queue="q", delay_s=60), JobSpec(task="t")])
            assert (await il.jobs("task:shop.send"))[0] == [], "nobody else sees it"
        assert [view.id for view in (await il.jobs("task:shop.send"))[0]] == [first]
        assert (await il.job(more[0])).queue == "q"
        assert msgspec.json.decode((await il.job(first)).input) == {"address": "a@b"}
        (entry,) = await il.services.jobs.history(first)
        assert entry.note.actor == "client"
        with contextlib.suppress(RolledBack):
            async with begun(driver, url) as transaction:
                gone = await il.within(transaction).submit("shop.gone")
                raise RolledBack
        assert (await il.jobs("task:shop.gone"))[0] == []
        again = await il.submit("shop.gone")
        assert again.id != gone
        waiting.cancel()


async def il_woken(il: Interlock) -> str:
    return (await il.submit(JobSpec(task="never", delay_s=3_600))).id


async def test_a_worker_that_waits_for_work_is_woken_by_the_commit(url: str) -> None:
    async with Interlock(url) as il:
        called = asyncio.Event()
        stop = il.services.store.subscribe(called.set)
        async with begun("asyncpg", url) as transaction:
            await il.within(transaction).submit("t")
        async with asyncio.timeout(60):
            await called.wait()
        stop()
        (grant,) = await il.services.orchestrator.claim(ClaimRequest(runner_id="r"))
        assert grant.task == "t"


@pytest.mark.parametrize("driver", SYNC)
def test_the_same_without_asyncio(driver: str, postgres: PostgresServer, tmp_path: Path) -> None:
    is_file = "sqlite" in driver
    url = f"sqlite:///{tmp_path}/jobs.db" if is_file else postgres.new_database()
    with sync.Interlock(url) as il:
        with begun_sync(driver, url) as transaction:
            job = il.within(transaction).submit("shop.send", address="a@b", request_id="r1")
            if not is_file or driver == "sqlite3":
                assert il.jobs("task:shop.send")[0] == []
        assert il.job(job).state == "PENDING"
        with begun_sync(driver, url) as transaction:
            assert il.within(transaction).submit("shop.send", address="a@b", request_id="r1") == job
            with pytest.raises(RequestIdReused):
                il.within(transaction).submit("shop.send", address="c@d", request_id="r1")
            kept = il.within(transaction).submit("shop.kept")
        assert il.job(kept).state == "PENDING", "a refusal leaves the transaction as it was"
        with contextlib.suppress(RolledBack), begun_sync(driver, url) as transaction:
            il.within(transaction).submit("shop.gone", request_id="r2")
            raise RolledBack
        assert il.jobs("task:shop.gone")[0] == []
        with begun_sync(driver, url) as transaction:
            il.within(transaction).submit("shop.other", request_id="r2")
        assert len(il.jobs("task:shop.other")[0]) == 1, "the request id was released as well"


async def test_racers_with_one_request_id_make_one_job(url: str) -> None:
    async with Interlock(url) as il:

        async def race() -> str:
            async with begun("asyncpg", url) as transaction:
                return await il.within(transaction).submit("shop.send", request_id="once")

        assert len({await one for one in asyncio.as_completed([race() for _ in range(8)])}) == 1
        assert len((await il.jobs("task:shop.send"))[0]) == 1


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_a_refused_submission_leaves_the_transaction_usable(driver: str, url: str) -> None:
    async with Interlock(url) as il:
        async with begun(driver, url) as transaction:
            with pytest.raises(InvalidJob, match="priority"):
                await il.within(transaction).submit(JobSpec(task="t", priority=10_000))
            with pytest.raises(InvalidArguments, match="with a parent"):
                await il.within(transaction).submit(JobSpec(task="t", parent_job_id="j_000000000000"))
            job = await il.within(transaction).submit("t")
        assert (await il.job(job)).task == "t"


async def test_the_tables_are_enforced_also_on_a_connection_of_the_user(url: str) -> None:
    async with Interlock(url) as il:
        async with begun("asyncpg", url) as transaction:
            job = await il.within(transaction).submit("t")
            with pytest.raises(asyncpg.PostgresError):
                async with transaction.transaction():
                    await transaction.execute("UPDATE interlock.live SET state = 'SUBMITTED'")
        assert (await il.job(job)).state == "PENDING"


async def test_a_connection_without_a_transaction_is_refused(url: str, tmp_path: Path) -> None:
    async with Interlock(url) as il:
        connection = await asyncpg.connect(url)
        with pytest.raises(InvalidArguments, match="in no transaction"):
            await il.within(connection).submit("t")
        await connection.close()
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as pg:
            with pytest.raises(InvalidArguments, match="in no transaction"):
                await il.within(pg).submit("t")
        with (
            contextlib.closing(sqlite3.connect(":memory:")) as other,
            pytest.raises(InvalidArguments, match=r"takes a connection of asyncpg or psycopg 3") as caught,
        ):
            await il.within(other).submit("t")
        assert "pip install 'interlock[psycopg]'" in caught.value.todo
    async with Interlock(f"sqlite:///{tmp_path}/jobs.db") as il:
        bare = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
        with contextlib.closing(bare), pytest.raises(InvalidArguments, match="in no transaction"):
            await il.within(bare).submit("t")
        with (
            contextlib.closing(sqlite3.connect(":memory:")) as other,
            pytest.raises(InvalidArguments, match="leads to memory"),
        ):
            await il.within(other).submit("t")
    async with Interlock("memory:") as il:
        with pytest.raises(InvalidArguments, match="only with a store on PostgreSQL or SQLite"):
            await il.within(object()).submit("t")


async def test_a_submission_in_a_transaction_on_a_database_without_the_store_is_refused(
    url: str, postgres: PostgresServer
) -> None:
    elsewhere = postgres.new_database(template="template0")
    async with Interlock(url) as il, begun("asyncpg", elsewhere) as transaction:
        with pytest.raises(InvalidArguments, match="without this store"):
            await il.within(transaction).submit("t")


async def test_a_submission_to_an_sqlite_file_locked_by_another_transaction_raises_store_unavailable(
    tmp_path: Path,
) -> None:
    async with Interlock(f"sqlite:///{tmp_path}/jobs.db") as il:
        file = tmp_path / "jobs.db"
        with (
            contextlib.closing(sqlite3.connect(file)) as one,
            contextlib.closing(sqlite3.connect(file, timeout=0)) as other,
        ):
            await il.within(one).submit("t")
            with pytest.raises(StoreUnavailable, match="locked"):
                await il.within(other).submit("t")
            one.commit()
            job = await il.within(other).submit("t")
            other.commit()
        assert (await il.job(job)).state == "PENDING"


# Completing a job together with the writes of its handler


async def claimed(il: Interlock, **spec: Any) -> tuple[Grant, Context]:
    await il.submit(JobSpec(task="t", **spec))
    (grant,) = await il.services.orchestrator.claim(ClaimRequest(runner_id="r"))
    return grant, Context(grant, now=lambda: grant.granted_at)


def places(tmp_path: Path, url: str) -> dict[str, str]:
    return {"asyncpg": url, "psycopg": url, "sqlite3": f"sqlite:///{tmp_path}/jobs.db"}


@asynccontextmanager
async def transaction_on(driver: str, url: str) -> AsyncIterator[Any]:
    if driver == "sqlite3":
        with contextlib.closing(sqlite3.connect(_file(url))) as connection, connection:
            yield connection
    else:
        async with begun(driver, url) as transaction:
            yield transaction


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg", "sqlite3"])
async def test_a_completion_is_true_together_with_the_writes_of_the_handler(
    driver: str, url: str, tmp_path: Path
) -> None:
    place = places(tmp_path, url)[driver]
    async with Interlock(place) as il:
        grant, ctx = await claimed(il)
        with contextlib.suppress(RolledBack):
            async with transaction_on(driver, place) as transaction:
                await il.within(transaction).complete(ctx, {"n": 1})
                raise RolledBack
        assert (await il.job(grant.job_id)).state == "RUNNING"
        hear = il.services.orchestrator.report
        beat = Heartbeat(token=grant.token, runner_id="r", sequence=1)
        assert isinstance((await hear([beat]))[0], Heard), "the lease lives on"
        async with transaction_on(driver, place) as transaction:
            assert await il.within(transaction).complete(ctx, {"n": 1}) == {"n": 1}
            child = await il.within(transaction).submit("next")
        view = await il.job(grant.job_id)
        assert (view.state, view.result) == ("COMPLETED", msgspec.Raw(b'{"n":1}'))
        assert (await il.job(child)).state == "PENDING"
        completion = Complete(
            token=grant.token, runner_id="r", sequence=2, outcome=Succeeded(msgspec.Raw(b'{"n":1}'))
        )
        assert isinstance((await hear([completion]))[0], Heard), "the report of the worker is a repeat"


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg", "sqlite3"])
async def test_a_stale_lease_makes_the_transaction_fail(driver: str, url: str, tmp_path: Path) -> None:
    place = places(tmp_path, url)[driver]
    async with Interlock(place) as il:
        grant, ctx = await claimed(il)
        await il.cancel(grant.job_id)
        released = Complete(token=grant.token, runner_id="r", outcome=Succeeded(msgspec.Raw(b"2")))
        await il.services.orchestrator.report([released])

        async def effect() -> None:
            async with transaction_on(driver, place) as transaction:
                await il.within(transaction).submit("effect")
                await il.within(transaction).complete(ctx, 1)

        with pytest.raises(ConflictingCompletion, match="Another completion was accepted before"):
            await effect()
        assert (await il.jobs("task:effect"))[0] == []
        forged = Context(msgspec.structs.replace(grant, token=""), now=lambda: grant.granted_at)
        async with transaction_on(driver, place) as transaction:
            with pytest.raises(UnknownLease, match="has no lease here"):
                await il.within(transaction).complete(forged, 1)


async def test_an_expired_lease_makes_the_transaction_fail(tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path}/jobs.db"
    async with Interlock(place) as il:
        grant, ctx = await claimed(il)
        move_sqlite(il.services.store, grant.ttl_s + 1)
        async with transaction_on("sqlite3", place) as transaction:
            with pytest.raises(LeaseExpired):
                await il.within(transaction).complete(ctx, 1)
            kept = await il.within(transaction).submit("kept")
        assert (await il.job(kept)).state == "PENDING"
        assert (await il.job(grant.job_id)).state == "RUNNING"


DJANGO = """
import sys
import django
from django.conf import settings
from urllib.parse import urlsplit, parse_qs

kind, place, url = sys.argv[1:]
if kind == "postgresql":
    parts = urlsplit(place)
    asked = parse_qs(parts.query)
    where = {"HOST": asked["host"][0], "PORT": asked["port"][0]}
    database = {"NAME": parts.path[1:], "USER": parts.username, **where}
else:
    database = {"NAME": place}
settings.configure(DATABASES={"default": {"ENGINE": f"django.db.backends.{kind}", **database}}, USE_TZ=True)
django.setup()
from django.db import connection, transaction
from interlock.sync import Interlock

with Interlock(url) as il:
    with transaction.atomic():
        kept = il.within(connection).submit("shop.kept")
        assert il.jobs("task:shop.kept")[0] == [], "nobody else sees it"
    assert il.job(kept).state == "PENDING"
    try:
        with transaction.atomic():
            il.within(connection).submit("shop.gone")
            1 / 0
    except ZeroDivisionError:
        pass
    assert il.jobs("task:shop.gone")[0] == []
    try:
        il.within(connection).submit("shop.gone")
    except Exception as error:
        assert "in no transaction" in str(error), error
    else:
        raise AssertionError("there was no transaction")
"""


@pytest.mark.parametrize("kind", ["postgresql", *further("sqlite3")])
def test_a_job_is_submitted_within_atomic_of_django(
    kind: str, postgres: PostgresServer, tmp_path: Path
) -> None:
    """In a process of its own, because Django is configured once for each."""
    file = str(tmp_path / "jobs.db")
    url = postgres.new_database() if kind == "postgresql" else f"sqlite:///{file}"
    place = url if kind == "postgresql" else file
    done = subprocess.run(
        [sys.executable, "-c", DJANGO, kind, place, url], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


async def test_of_two_completions_in_two_transactions_one_counts(url: str) -> None:
    async with Interlock(url) as il:
        grant, ctx = await claimed(il)

        async def complete(result: int) -> int:
            async with begun("asyncpg", url) as transaction:
                return await il.within(transaction).complete(ctx, result)

        came = await asyncio.gather(*map(complete, (1, 2, 3)), return_exceptions=True)
        (won,) = [one for one in came if isinstance(one, int)]
        assert (await il.job(grant.job_id)).result == msgspec.Raw(b"%d" % won)
        assert all(isinstance(one, int | ConflictingCompletion) for one in came)
