"""No space on the disk for the next commit, and then space again.

Shows: a commit without space is refused with `StoreUnavailable`, which says that the disk is full and that
nothing was written; no part of it is stored, everything before it is, and with space again the same store
continues without being reopened.

Broken mode: a client that treats every commit as done, after any response.

The disk is a tmpfs of a few megabytes. If that may not be mounted, the size of files is limited for this
process instead (`RLIMIT_FSIZE`): the kernel then refuses to let the log grow in the same way, although with
another error number, so that only the general text of the error is checked.
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from interlock.errors import StoreUnavailable
from interlock.store.contract import Store
from interlock.store.records import Commit, Committed, Key
from interlock_verification.chaos.counters import audited, examine, one_more
from interlock_verification.chaos.databases import SQLITE, opened
from interlock_verification.chaos.verdict import ChaosVerdict, Setup, judging

NAME = "disk_full"
STORES = (SQLITE,)
SHORT, LONG = 10, 200

ERA = 10
"""Rounds on one disk. After them the log is long enough for SQLite to checkpoint it into the database."""
DISK_BYTES = 64 * 1_048_576
MOST_ROOM = 4 * 1_048_576
"""Maximum free space of a full disk."""
ROUND_BYTES = 24 * 1_048_576
SMALLEST_FILE = 65_536
SIZES = (10, 5_000, 60_000)
AT_ONCE = 8
MOST_COMMITS = 8_000


class Disk(Protocol):
    """A place for a database whose free space can be taken away."""

    place: str
    says_full: bool
    """Whether the system reports a full disk, and not only a write error."""

    @property
    def folder(self) -> Path:
        """The folder of the disk."""
        ...

    def roomy(self) -> bool:
        """Return whether there is enough space for another round."""
        ...

    def fill(self, room: int) -> None:
        """Leave at most this many bytes."""
        ...

    def free(self) -> None:
        """Free the space again."""
        ...


def run(setup: Setup, *, mount: bool = True) -> ChaosVerdict:
    """Run the rounds on a full disk.

    Each fills the disk, commits until refused, frees space, and continues.
    """
    dice = random.Random(setup.seed)
    with judging(NAME, setup) as verdict:
        done = 0
        while done < setup.rounds:
            with _disk(mount=mount) as disk:
                done += asyncio.run(DiskTrial(disk, dice, verdict).run(min(ERA, setup.rounds - done)))
        verdict.remarks.append(f"on {disk.place}")
    return verdict


class DiskTrial:
    """The rounds on one disk."""

    def __init__(self, disk: Disk, dice: random.Random, verdict: ChaosVerdict) -> None:
        self._disk = disk
        self._dice = dice
        self._verdict = verdict
        self._url = f"sqlite:///{disk.folder / 'chaos.db'}"
        self._acknowledged: set[str] = set()
        self._refused: set[str] = set()

    async def run(self, most: int) -> int:
        """Run rounds on one store, then reopen it; return how many."""
        done = 0
        async with opened(self._url) as store:
            while done < most and self._disk.roomy():
                number = done = done + 1
                self._disk.fill(self._dice.randrange(MOST_ROOM))
                try:
                    await self._commit_until_refused(store, f"r{number}")
                finally:
                    self._disk.free()
                await self._go_on(store, f"again{number}")
            await self._judge(store)
        if not self._verdict.broken_promises:
            async with opened(self._url) as store:
                await self._judge(store)
        self._verdict.add(acknowledged=len(self._acknowledged))
        return done

    async def _go_on(self, store: Store, name: str) -> None:
        [outcome] = await store.commit([_step(name, 10)])
        if isinstance(outcome, Committed):
            self._acknowledged.add(name)
        else:
            self._verdict.blame(f"with room again the answer was {outcome}")

    async def _commit_until_refused(self, store: Store, name: str) -> None:
        """Commit batches of varying size until one is refused.

        So the disk is full at any point of a transaction.
        """
        for serial in range(MOST_COMMITS // AT_ONCE):
            names = [f"{name}.{serial}.{place}" for place in range(AT_ONCE)]
            commits = [_step(each, self._dice.choice(SIZES)) for each in names]
            answers = await asyncio.gather(
                *(store.commit([commit]) for commit in commits), return_exceptions=True
            )
            for each, answer in zip(names, answers, strict=True):
                self._note(each, answer)
            if any(isinstance(answer, BaseException) for answer in answers):
                self._verdict.add(times_full=1)
                return
        self._verdict.blame(f"a full disk took {MOST_COMMITS} commits")

    def _note(self, name: str, answer: object) -> None:
        if isinstance(answer, BaseException):
            self._verdict.add(refused=1)
            _check_words(answer, self._disk, self._verdict)
        if self._verdict.setup.broken or not isinstance(answer, BaseException):
            self._acknowledged.add(name)
        else:
            self._refused.add(name)

    async def _judge(self, store: Store) -> None:
        found = await examine(store, self._acknowledged)
        there = await store.load([Key("counter", name) for name in sorted(self._refused)])
        half = [record.id for record in there if record is not None]
        self._verdict.add(lost=len(found.lost), doubled=len(found.doubled), half_written=len(half))
        self._verdict.broken_promises += found.sentences() + await audited(store)
        self._verdict.broken_promises += [f"{name} was refused and is there" for name in half]


def _check_words(error: BaseException, disk: Disk, verdict: ChaosVerdict) -> None:
    if not isinstance(error, StoreUnavailable):
        verdict.blame(f"a full disk is reported as {error!r}")
    elif disk.says_full and "full" not in error.sentence:
        verdict.blame(f"the error does not say that the disk is full: {error.sentence}")


def _step(name: str, size: int) -> Commit:
    """Return the first step of a counter, with padding in its body."""
    commit = one_more(Key("counter", name), None, "d", name)
    [change] = commit.changes
    body = change.body[:-1] + b',"weight":"' + b"x" * size + b'"}'
    return Commit(changes=(msgspec.structs.replace(change, body=body),))


class SmallDisk:
    """A tmpfs, filled by a file that takes all free space."""

    place = "a small tmpfs"
    says_full = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def roomy(self) -> bool:
        """Return whether there is space for one round and a copy of the log."""
        return self._left() > ROUND_BYTES

    def fill(self, room: int) -> None:
        """Take all free space except that much."""
        with self._filler.open("wb") as filler:
            os.posix_fallocate(filler.fileno(), 0, self._left() - room)

    def free(self) -> None:
        """Remove the filler."""
        self._filler.unlink()

    def _left(self) -> int:
        disk = os.statvfs(self.folder)
        return disk.f_bavail * disk.f_bsize


class SmallFiles:
    """An ordinary disk on which no file may grow."""

    place = "a disk on which files may not grow"
    says_full = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._usual = resource.getrlimit(resource.RLIMIT_FSIZE)

    def roomy(self) -> bool:
        """Return True: the disk itself is an ordinary one."""
        return True

    def fill(self, room: int) -> None:
        """Empty the log, and limit its growth to that.

        Python ignores the signal for this limit, so that writing just fails.
        """
        with closing(sqlite3.connect(next(self.folder.glob("*.db")))) as shell:
            shell.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        resource.setrlimit(resource.RLIMIT_FSIZE, (max(room, SMALLEST_FILE), self._usual[1]))

    def free(self) -> None:
        """Restore the limit."""
        resource.setrlimit(resource.RLIMIT_FSIZE, self._usual)


@contextmanager
def _disk(*, mount: bool) -> Iterator[Disk]:
    with tempfile.TemporaryDirectory(prefix="interlock-chaos-") as name:
        folder = Path(name)
        if mount and _mounted(folder):
            try:
                yield SmallDisk(folder)
            finally:
                subprocess.run(["umount", "--lazy", name], check=True)
        else:
            yield SmallFiles(folder)


def _mounted(folder: Path) -> bool:
    if os.geteuid() != 0:
        return False
    options = ["-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    return subprocess.run(["mount", *options], capture_output=True, check=False).returncode == 0
