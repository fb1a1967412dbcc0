"""Commits of other processes wake by events of the files, and by looking where there are none."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import warnings
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_S, until

from interlock.store.sqlite import SqliteStore, file_events, reader
from interlock.testing.store_contract import CATALOGUE
from interlock.testing.store_contract.builders import creation, made

NEVER_S = 36_000.0
"""Far longer than a test is waited for."""
COMMIT = """
import asyncio, sys
from interlock.store.sqlite import SqliteStore
from interlock.testing.store_contract import CATALOGUE
from interlock.testing.store_contract.builders import creation, made
async def main():
    store = SqliteStore(sys.argv[1], CATALOGUE)
    await store.open()
    await made(store, creation(sys.argv[2]))
    await store.close()
asyncio.run(main())
"""
COMMIT_IN_A_SHELL = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("CREATE TABLE IF NOT EXISTS notes (text)")
connection.execute("INSERT INTO notes VALUES (?)", (sys.argv[2],))
"""
needs_events = pytest.mark.skipif(sys.platform != "linux", reason="inotify is of Linux")


class Woken:
    """A subscriber that counts; `again` waits for the next notification."""

    def __init__(self, store: SqliteStore) -> None:
        self.times = 0
        self.stop = store.subscribe(self._count)

    def _count(self) -> None:
        self.times += 1

    async def after(self, times: int) -> None:
        await until(lambda: self.times > times, "the subscriber was notified")


async def other_process(script: str, *words: str) -> None:
    """Run a script in another process to its end."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, *words)
    async with asyncio.timeout(PATIENCE_S):
        assert await process.wait() == 0


async def let_it_sleep(store: SqliteStore) -> None:
    """Make the reader wait for events alone, with both files watched."""
    own = store._reader

    def sleep(_: sqlite3.Connection) -> None:
        assert own._events is not None
        own._events.arm()
        own._events.wait(0.0, unless=bool)  # what the commits before have left
        own._events.arm()
        own._look()
        own._look_at = NEVER_S * 1e6

    await own.do(sleep)


@pytest.fixture
async def sleeping(store: SqliteStore) -> SqliteStore:
    """A store whose reader is woken by events, or not at all."""
    woken = Woken(store)
    await woken.after(0)
    await let_it_sleep(store)
    woken.stop()
    return store


@needs_events
async def test_a_commit_of_another_process_wakes_without_polling(
    sleeping: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "LOOK_SOON_S", NEVER_S)
    woken = Woken(sleeping)
    await woken.after(0)
    for n in range(2):
        await let_it_sleep(sleeping)
        before = woken.times
        await other_process(COMMIT, str(path), f"p{n}")
        await woken.after(before)


@needs_events
async def test_a_commit_of_a_shell_in_another_process_is_found_after_an_event_of_the_log(
    sleeping: SqliteStore, path: Path
) -> None:
    woken = Woken(sleeping)
    await woken.after(0)
    for n in range(2):
        await let_it_sleep(sleeping)
        before = woken.times
        await other_process(COMMIT_IN_A_SHELL, str(path), f"n{n}")
        await woken.after(before)


@needs_events
@pytest.mark.parametrize("mode", ["PASSIVE", "RESTART", "TRUNCATE"])
async def test_a_checkpoint_of_the_log_ends_no_notification(
    sleeping: SqliteStore, path: Path, mode: str
) -> None:
    woken = Woken(sleeping)
    await woken.after(0)
    with closing(sqlite3.connect(path, isolation_level=None)) as shell:
        shell.execute("CREATE TABLE notes (text)")
        for _ in range(2):
            [blocked, *_] = shell.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
            assert not blocked
            await let_it_sleep(sleeping)
            before = woken.times
            shell.execute("INSERT INTO notes VALUES ('a')")
            await woken.after(before)


@needs_events
async def test_stores_of_one_process_are_each_woken_by_their_own_file(tmp_path: Path) -> None:
    stores = [SqliteStore(str(tmp_path / name), CATALOGUE) for name in ("a.db", "a.db", "b.db")]
    for each in stores:
        await each.open()
    woken = [Woken(each) for each in stores]
    for one in woken:
        await one.after(0)
    for each in stores:
        await let_it_sleep(each)
    _, second, third = (one.times for one in woken)
    await made(stores[0], creation("a"))
    await woken[1].after(second)
    await stores[2].now()
    assert woken[2].times == third
    await made(stores[2], creation("a"))
    await woken[2].after(third)
    for each in stores:
        await each.close()


@needs_events
async def test_a_process_that_forks_is_still_woken(sleeping: SqliteStore, path: Path) -> None:
    woken = Woken(sleeping)
    await woken.after(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which the child does not use
        child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    await let_it_sleep(sleeping)
    before = woken.times
    await other_process(COMMIT, str(path), "a")
    await woken.after(before)


@needs_events
async def test_a_reader_that_waits_for_events_answers_and_closes_at_once(
    sleeping: SqliteStore,
) -> None:
    Woken(sleeping)
    await let_it_sleep(sleeping)
    await sleeping.now()
    await let_it_sleep(sleeping)
    events = sleeping._reader._events
    assert events is not None
    await sleeping.close()
    assert not sleeping._reader._thread.is_alive()
    for descriptor in (events._events, events._interrupts):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
    events.interrupt()  # does nothing


@needs_events
async def test_a_commit_whose_events_are_lost_is_found_by_the_next_look(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(self: file_events.FileEvents) -> tuple[bool, bool]:
        os.read(self._events, 4_096)
        return False, False

    woken = Woken(store)
    await woken.after(0)
    monkeypatch.setattr(file_events.FileEvents, "_read_events", lose)
    before = woken.times
    await other_process(COMMIT, str(path), "a")
    await woken.after(before)


def unavailable(_: Path) -> None:
    raise OSError("inotify_init1")


class NoInotify:
    """A C library without it."""

    def __init__(self, *_: object, **__: object) -> None:
        pass


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        pytest.param("FileEvents", unavailable, id="none_available"),
        pytest.param("announce", lambda _: None, id="not_delivered"),
    ],
)
async def test_without_events_a_commit_of_another_process_is_found_by_polling(
    store: SqliteStore,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    instead: Callable[[Path], None],
) -> None:
    monkeypatch.setattr(file_events, name, instead)
    woken = Woken(store)
    await woken.after(0)
    await store.now()
    assert store._reader._events is None
    before = woken.times
    await other_process(COMMIT, str(path), "a")
    await woken.after(before)


def test_a_system_without_inotify_has_no_events(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", NoInotify)
    assert file_events.open_events(path) is None


def watchers() -> int:
    """Return how many descriptors of inotify and for interrupts this process has."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # that of the folder is closed by now
            found += "anon_inode:" in str(link.readlink())
    return found


@needs_events
def test_a_database_without_a_log_has_no_events(path: Path) -> None:
    before = watchers()
    assert file_events.open_events(path) is None
    assert watchers() == before


@needs_events
async def test_an_announcement_wakes_through_a_symbolic_link(store: SqliteStore, path: Path) -> None:
    link = path.with_name("link.db")
    link.symlink_to(path)
    through = SqliteStore(str(link), CATALOGUE)
    await through.open()
    woken = Woken(through)
    await woken.after(0)
    await let_it_sleep(through)
    before = woken.times
    await made(store, creation("a"))
    await woken.after(before)
    await through.close()
