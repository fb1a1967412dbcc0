"""A disk of which only what was flushed survives, as SQLite sees it (a VFS of `apsw`).

Everything is passed on to the real files, and written down. When the power goes, a file is what it was
at its last flush, and of what was written since then any part may have made it: each write as a whole,
not at all, or some of its sectors. A file that was never flushed is not there.

This also lets the real store run on it. `apsw` brings an SQLite of its own, so for a while the store's
module gets a driver with the face of `sqlite3` that leads there; all statements, pragmas and threads
are the store's own.
"""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import apsw

from interlock.store.sqlite import database

SECTOR = 512
_SETTING = re.compile(r"PRAGMA (\w+) = ")

Image: TypeAlias = dict[str, bytes]
"""What is on the disk, by the name of the file."""


class _Content:
    """One file: what is on the disk for sure, and what was done since, in order."""

    def __init__(self) -> None:
        self.flushed: bytearray | None = None
        self.pending: list[tuple[int, bytes | None]] = []
        """A place and what was written there; None where the file was cut at that place."""

    def flush(self) -> None:
        self.flushed = _after(self.flushed or bytearray(), self.pending)
        self.pending = []

    def after_power_loss(self, dice: random.Random) -> bytes | None:
        if self.flushed is None:
            return None
        return bytes(_after(bytearray(self.flushed), [*_survivors(self.pending, dice)]))


def _after(content: bytearray, writes: Sequence[tuple[int, bytes | None]]) -> bytearray:
    for place, data in writes:
        if data is None:
            del content[place:]
            continue
        if len(content) < place:
            content.extend(bytes(place - len(content)))
        content[place : place + len(data)] = data
    return content


def _survivors(
    pending: Sequence[tuple[int, bytes | None]], dice: random.Random
) -> Iterator[tuple[int, bytes | None]]:
    """All of them, none of them, or some and parts of some."""
    fate = dice.choice(("none", "all", "some"))
    for place, data in pending:
        if fate == "none" or (fate == "some" and dice.random() < 0.5):
            continue
        if fate == "some" and data is not None and len(data) > SECTOR and dice.random() < 0.5:
            for start in range(0, len(data), SECTOR):
                if dice.random() < 0.5:
                    yield place + start, data[start : start + SECTOR]
        else:
            yield place, data


class ForgetfulDisk(apsw.VFS):
    """The usual disk, watched. `before_each` is called before each write, cut and flush."""

    def __init__(self, name: str, before_each: Callable[[], None]) -> None:
        self.name = name
        self.before_each = before_each
        self.operations = 0
        self.flushes = 0
        self._contents: dict[str, _Content] = {}
        super().__init__(name, "")

    def xOpen(self, name: Any, flags: list[int]) -> ForgetfulFile:  # noqa: N802 - SQLite's name
        """Every file is watched, except those that SQLite deletes by itself."""
        path = name if isinstance(name, str) or name is None else name.filename()
        return ForgetfulFile(self, path, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        """Gone at once: SQLite deletes only what it needs no more."""
        self._contents.pop(Path(filename).name, None)
        super().xDelete(filename, syncdir)

    def content_of(self, path: str | None) -> _Content:
        """Shared by all who have the file open."""
        return self._contents.setdefault(Path(path).name, _Content()) if path else _Content()

    def next_operation(self) -> None:
        """The power may go now."""
        self.operations += 1
        self.before_each()

    def after_power_loss(self, dice: random.Random) -> Image:
        """What would be on the disk if the power went now."""
        images = {name: content.after_power_loss(dice) for name, content in list(self._contents.items())}
        return {name: image for name, image in images.items() if image is not None}


class ForgetfulFile(apsw.VFSFile):
    """One open file. Shared memory, which no power loss leaves anything of, is SQLite's own affair."""

    def __init__(self, disk: ForgetfulDisk, path: str | None, name: Any, flags: list[int]) -> None:
        self._disk = disk
        self._content = disk.content_of(path)
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        """To the real file, and into the list of what may be lost."""
        self._disk.next_operation()
        super().xWrite(data, offset)
        self._content.pending.append((offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        """Likewise."""
        self._disk.next_operation()
        super().xTruncate(newsize)
        self._content.pending.append((newsize, None))

    def xSync(self, flags: int) -> None:  # noqa: N802
        """From here on it is safe; the real file need not be flushed for that."""
        del flags
        self._disk.next_operation()
        self._disk.flushes += 1
        self._content.flush()


class Driver:
    """`sqlite3`, but connections go through a disk of ours. `pragmas` are set instead of the store's own."""

    def __init__(self, disk: ForgetfulDisk, pragmas: Mapping[str, str]) -> None:
        self._disk = disk
        self._pragmas = pragmas

    def __getattr__(self, name: str) -> Any:
        return getattr(sqlite3, name)

    def connect(self, path: Path, **_: object) -> DriverConnection:
        """What the store calls."""
        connection = apsw.Connection(str(path), vfs=self._disk.name)
        return DriverConnection(connection, self._pragmas)


class DriverConnection:
    """The few methods of a connection that the store uses."""

    def __init__(self, connection: apsw.Connection, pragmas: Mapping[str, str]) -> None:
        self._connection = connection
        self._pragmas = pragmas
        self.close = connection.close
        self.interrupt = connection.interrupt

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._connection.in_transaction

    def execute(self, sql: str, values: Sequence[Any] = ()) -> apsw.Cursor:
        """Run a statement."""
        asked = _SETTING.match(sql)
        if asked and asked[1] in self._pragmas:
            sql = f"PRAGMA {asked[1]} = {self._pragmas[asked[1]]}"
        with _in_words_of_sqlite3():
            return self._connection.execute(sql, tuple(values))

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]]) -> apsw.Cursor:
        """Run a statement for each row."""
        with _in_words_of_sqlite3():
            return self._connection.executemany(sql, [tuple(row) for row in rows])


@contextmanager
def _in_words_of_sqlite3() -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        translated = sqlite3.OperationalError(str(error))
        translated.sqlite_errorcode = getattr(error, "extendedresult", 0)
        translated.sqlite_errorname = type(error).__name__
        raise translated from error


@contextmanager
def stores_on(disk: ForgetfulDisk, pragmas: Mapping[str, str]) -> Iterator[None]:
    """For as long as this lasts, every SQLite store of this process that is opened is on this disk."""
    usual = vars(database)["sqlite3"]
    vars(database)["sqlite3"] = Driver(disk, pragmas)
    try:
        yield
    finally:
        vars(database)["sqlite3"] = usual
        disk.unregister()
