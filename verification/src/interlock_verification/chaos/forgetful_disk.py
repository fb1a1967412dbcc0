"""A disk that keeps only flushed writes, as SQLite sees it (a VFS of `apsw`).

All operations are passed on to the real files, and recorded. After a power loss, a file has its content of
the last flush, plus any part of the later writes: each as a whole, not at all, or some of its sectors. A file
that was never flushed does not exist.

The real store can run on it. `apsw` contains its own SQLite, so the store's module temporarily gets a driver
with the interface of `sqlite3` that uses it; all statements, pragmas and threads are the store's.
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
"""The content of the disk, by file name."""


class _Content:
    """One file: the flushed content, and later operations in order."""

    def __init__(self) -> None:
        self.flushed: bytearray | None = None
        self.pending: list[tuple[int, bytes | None]] = []
        """Offset and data of a write; None for a truncation at that offset."""

    def flush(self) -> None:
        self.flushed = _content_after(self.flushed or bytearray(), self.pending)
        self.pending = []

    def after_power_loss(self, dice: random.Random) -> bytes | None:
        if self.flushed is None:
            return None
        return bytes(_content_after(bytearray(self.flushed), [*_survivors(self.pending, dice)]))


def _content_after(content: bytearray, writes: Sequence[tuple[int, bytes | None]]) -> bytearray:
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
    """Yield the surviving operations: all, none, or some and parts of some."""
    loss = dice.choice(("none", "all", "some"))
    for place, data in pending:
        if loss == "none" or (loss == "some" and dice.random() < 0.5):
            continue
        if loss == "some" and data is not None and len(data) > SECTOR and dice.random() < 0.5:
            for start in range(0, len(data), SECTOR):
                if dice.random() < 0.5:
                    yield place + start, data[start : start + SECTOR]
        else:
            yield place, data


class ForgetfulDisk(apsw.VFS):
    """The usual disk, recorded. `before_each` is called before each write, truncation and flush."""

    def __init__(self, name: str, before_each: Callable[[], None]) -> None:
        self.name = name
        self.before_each = before_each
        self.operations = 0
        self.flushes = 0
        self._contents: dict[str, _Content] = {}
        super().__init__(name, "")

    def xOpen(self, name: Any, flags: list[int]) -> ForgetfulFile:  # noqa: N802 - SQLite's name
        """Open a recorded file."""
        path = name if isinstance(name, str) or name is None else name.filename()
        return ForgetfulFile(self, path, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        """Delete a file at once.

        SQLite deletes only files that it no longer needs.
        """
        self._contents.pop(Path(filename).name, None)
        super().xDelete(filename, syncdir)

    def content_of(self, path: str | None) -> _Content:
        """Return the content shared by all handles of a file."""
        return self._contents.setdefault(Path(path).name, _Content()) if path else _Content()

    def next_operation(self) -> None:
        """Count an operation; the power may fail now."""
        self.operations += 1
        self.before_each()

    def after_power_loss(self, dice: random.Random) -> Image:
        """Return the content of the disk if the power failed now."""
        images = {name: content.after_power_loss(dice) for name, content in list(self._contents.items())}
        return {name: image for name, image in images.items() if image is not None}


class ForgetfulFile(apsw.VFSFile):
    """One open file. Shared memory is left to SQLite, since it does not survive a power loss."""

    def __init__(self, disk: ForgetfulDisk, path: str | None, name: Any, flags: list[int]) -> None:
        self._disk = disk
        self._content = disk.content_of(path)
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        """Write to the real file, and record the write."""
        self._disk.next_operation()
        super().xWrite(data, offset)
        self._content.pending.append((offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        """Truncate the real file, and record the truncation."""
        self._disk.next_operation()
        super().xTruncate(newsize)
        self._content.pending.append((newsize, None))

    def xSync(self, flags: int) -> None:  # noqa: N802
        """Mark recorded operations as flushed; the real file need not be."""
        del flags
        self._disk.next_operation()
        self._disk.flushes += 1
        self._content.flush()


class RecordedDriver:
    """`sqlite3`, with connections on a recorded disk. `pragmas` replace those of the store."""

    def __init__(self, disk: ForgetfulDisk, pragmas: Mapping[str, str]) -> None:
        self._disk = disk
        self._pragmas = pragmas

    def __getattr__(self, name: str) -> Any:
        return getattr(sqlite3, name)

    def connect(self, path: Path, **_: object) -> DriverConnection:
        """Return a connection, as the store requests it."""
        connection = apsw.Connection(str(path), vfs=self._disk.name)
        return DriverConnection(connection, self._pragmas)


class DriverConnection:
    """The methods of a connection that the store uses."""

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
        setting = _SETTING.match(sql)
        if setting and setting[1] in self._pragmas:
            sql = f"PRAGMA {setting[1]} = {self._pragmas[setting[1]]}"
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
    """Put every SQLite store here on this disk, within the context."""
    usual = vars(database)["sqlite3"]
    vars(database)["sqlite3"] = RecordedDriver(disk, pragmas)
    try:
        yield
    finally:
        vars(database)["sqlite3"] = usual
        disk.unregister()
