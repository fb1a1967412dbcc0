"""A store that is restored from a backup never gives out a fence again.

These are the procedures of `docs/guides/choosing-a-store.md`, "Back up and restore", executed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from tests.waiting import PROGRAM_S

from interlock.cli.main import main
from interlock.store.sqlite import SqliteStore
from interlock.systems.catalogue import CATALOGUE
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.testing.binaries import environment, postgres_programs
from interlock.testing.servers import PostgresServer, redis_server
from interlock.wire.jobs import JobSpec
from interlock.wire.runner import ClaimRequest


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[EmbeddedOrchestrator]:
    port = EmbeddedOrchestrator(url)
    await port.connect()
    try:
        yield port
    finally:
        await port.disconnect()


async def submitted(url: str) -> None:
    async with opened(url) as port:
        await port.services.jobs.submit(JobSpec(task="shop.greet"))


async def fence(url: str) -> int:
    """Take the one job that there is; its fence is what an outside system is shown."""
    async with opened(url) as port:
        return await taken(port)


async def taken(port: EmbeddedOrchestrator) -> int:
    [grant] = await port.claim(ClaimRequest(runner_id="till#1", queues=("default",), limit=1))
    return grant.fence


def in_shell(program: str, *words: str) -> None:
    """Run a program of PostgreSQL."""
    programs = postgres_programs()
    subprocess.run(
        [programs.path(program), *words],
        env=environment(programs.environment),
        check=True,
        timeout=PROGRAM_S,
        stdout=subprocess.DEVNULL,
    )


def back_up_sqlite(path: Path, copy: Path) -> None:
    """What `sqlite3 PATH ".backup COPY"` does; the program is not on every machine."""
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)


def put_back_over(path: Path, copy: Path) -> None:
    """`cp`: the file stays the same one."""
    for log in ("-wal", "-shm"):
        Path(f"{path}{log}").unlink(missing_ok=True)
    subprocess.run(["cp", str(copy), str(path)], check=True)


def put_back_anew(path: Path, copy: Path) -> None:
    path.unlink()
    put_back_over(path, copy)


def put_back_page_by_page(path: Path, copy: Path) -> None:
    """What `.restore` does."""
    back_up_sqlite(copy, path)


@pytest.mark.parametrize("put_back", [put_back_over, put_back_anew, put_back_page_by_page])
async def test_a_restored_sqlite_file_gives_out_larger_fences(
    tmp_path: Path, put_back: Callable[[Path, Path], None]
) -> None:
    path, copy = tmp_path / "interlock.db", tmp_path / "copy.db"
    url = f"sqlite:///{path}"
    await submitted(url)
    back_up_sqlite(path, copy)
    fences = [await fence(url)]
    for _ in range(2):
        put_back(path, copy)
        if len(fences) > 1 or (put_back is not put_back_anew and not can_mark(tmp_path)):
            assert await told(url, fences[-1])  # the same backup again, within half an hour
        fences.append(await fence(url))
    assert fences == sorted(set(fences))


def can_mark(folder: Path) -> bool:
    try:
        os.setxattr(folder, "user.interlock.test", b"1")
    except OSError:
        return False
    return True


async def told(url: str, seen: int) -> bool:
    """`interlock db restored --fence SEEN`."""
    code = await asyncio.to_thread(main, ["db", "restored", "--fence", str(seen), "--store", url])
    return code == 0


def into_another_database(server: PostgresServer, dump: Path, _: str) -> str:
    name = server.new_database_name(template="template0")
    in_shell("pg_restore", "--no-owner", "--dbname", server.url_of(name), str(dump))
    return name


def into_the_same_database(server: PostgresServer, dump: Path, name: str) -> str:
    words = ("--clean", "--if-exists", "--no-owner", "--single-transaction", "--dbname")
    in_shell("pg_restore", *words, server.url_of(name), str(dump))
    return name


@pytest.mark.parametrize("put_back", [into_another_database, into_the_same_database])
async def test_a_restored_postgres_database_gives_out_larger_fences(
    postgres: PostgresServer, tmp_path: Path, put_back: Callable[[PostgresServer, Path, str], str]
) -> None:
    dump, name = tmp_path / "interlock.dump", postgres.new_database_name()
    await submitted(postgres.url_of(name))
    in_shell("pg_dump", "--format=custom", f"--file={dump}", postgres.url_of(name))
    fences = [await fence(postgres.url_of(name))]
    for _ in range(2):
        name = put_back(postgres, dump, name)
        if len(fences) > 1:
            assert await told(postgres.url_of(name), fences[-1])  # the same backup again, within half an hour
        fences.append(await fence(postgres.url_of(name)))
    assert fences == sorted(set(fences))


async def test_a_redis_server_that_starts_with_an_older_snapshot_gives_out_larger_fences(
    tmp_path: Path,
) -> None:
    with redis_server(append_only="off", settings={"dbfilename": "dump.rdb"}) as server:
        await submitted(server.url)
        server.run("SAVE")
        shutil.copy(server.folder / "dump.rdb", tmp_path)
        fences = [await fence(server.url)]
        for _ in range(2):
            server.kill()
            shutil.copy(tmp_path / "dump.rdb", server.folder)
            server.start()
            fences.append(await fence(server.url))
    assert fences == sorted(set(fences))


async def test_a_store_that_went_back_under_a_running_program_is_noticed_by_it(tmp_path: Path) -> None:
    """What a client has seen is compared with what the store says."""
    async with opened(f"sqlite:///{tmp_path / 'a.db'}") as port:
        await port.services.jobs.submit_many([JobSpec(task="shop.greet")] * 2)
        await port.services.store.raise_epoch(await port.services.store.epoch() + 10)
        first = await taken(port)
        with closing(sqlite3.connect(tmp_path / "a.db")) as shell:
            epoch = first >> 32
            shell.execute("UPDATE progress SET epoch = ?", (epoch - 1,))
            shell.commit()
        await port.connect()
        assert await taken(port) >> 32 > epoch


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'interlock.db'}"
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        return server.new_database()
    return str(request.getfixturevalue("redis").url)


async def test_the_command_begins_an_epoch_above_every_fence_that_was_seen(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["db", "restored", "--store", url]
    for more in ([], ["--fence", str(9_000_000_000_000 << 32)]):
        assert await asyncio.to_thread(main, [*words, *more]) == 0
    output = capsys.readouterr().out
    assert "epoch 9000000000001" in output


async def test_an_epoch_is_no_earlier_than_the_half_hour(tmp_path: Path) -> None:
    """So a backup that nobody reported is safe when restoring took longer than that."""
    store = SqliteStore(str(tmp_path / "a.db"), CATALOGUE)
    await store.open()
    try:
        before = await store.epoch()
        store._clock._latest_us = store._clock.read() + 3_600_000_000
        assert await store.epoch() >= before + 2
    finally:
        await store.close()
