"""A process that is killed while it commits has lost nothing that it acknowledged."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from interlock.store.sqlite import SqliteStore
from interlock.testing.store_contract import CATALOGUE
from interlock.testing.store_contract.builders import whole_feed

ROUNDS = 5
ACKNOWLEDGED_PER_ROUND = 60
COMMIT_FOR_EVER = """
import asyncio, itertools, sys
from interlock.store.sqlite import SqliteStore
from interlock.testing.store_contract import CATALOGUE
from interlock.testing.store_contract.builders import PACKING, SENDING, creation, each, made, move
async def work(store, name):
    for n in itertools.count():
        [record] = await made(store, creation(f"{name}-{n}", note=PACKING))
        await store.commit(each(move(record, note=SENDING)))
        print(record.id, flush=True)
async def main():
    store = SqliteStore(sys.argv[1], CATALOGUE)
    await store.open()
    await asyncio.gather(*(work(store, f"{sys.argv[2]}-{n}") for n in range(4)))
asyncio.run(main())
"""


def acknowledged_before_the_kill(path: Path, number: int) -> list[str]:
    """Run it, kill it in the middle of its work, and say what it had acknowledged."""
    with subprocess.Popen(
        [sys.executable, "-c", COMMIT_FOR_EVER, str(path), str(number)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        names = [process.stdout.readline().strip() for _ in range(ACKNOWLEDGED_PER_ROUND)]
        process.send_signal(signal.SIGKILL)
        whole, _, _ = process.stdout.read().rpartition("\n")  # the last line may be cut
        return names + whole.split()


@pytest.mark.long  # chaos/test_killing kills processes as well
async def test_nothing_acknowledged_is_lost_and_nothing_is_half_done(path: Path) -> None:
    acknowledged: list[str] = []
    for number in range(ROUNDS):
        acknowledged += acknowledged_before_the_kill(path, number)
    assert len(acknowledged) >= ROUNDS * ACKNOWLEDGED_PER_ROUND
    store = SqliteStore(str(path), CATALOGUE)
    await store.open()
    entries = await whole_feed(store)
    await store.close()
    newest = {entry.id: entry.version for entry in entries}
    assert all(newest.get(name) == 2 for name in acknowledged)
    with closing(sqlite3.connect(path)) as shell:
        assert dict(shell.execute("SELECT id, version FROM records")) == newest
        assert shell.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
