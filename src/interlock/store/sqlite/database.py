"""The database file: where it lies, its clock, opening it, and bringing its schema up to date.

The clock is the host's, held so that it never goes back. Within one process: when the host's clock is set
back, time goes on from where it was, at the speed of the monotonic clock, so that deadlines still pass.
Between processes: each transaction begins no earlier than the latest one on record. The price is that a
clock which was once far ahead keeps the database ahead; every time it has given out stays in order.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote

from interlock.errors import BadStoreUrl, ForeignSchema, StoreMisconfigured, StoreTooOld
from interlock.store.catalogue import Catalogue, Kind
from interlock.store.migrations import (
    Migration,
    check_fingerprints,
    development_schema,
    floor_of,
    migrations_of,
    outstanding,
    too_new,
)
from interlock.store.sqlite.failures import is_busy, late, store_error
from interlock.store.validation import EPOCH_EVERY_S

_SCHEME = "sqlite:"
log = logging.getLogger("interlock.store")

PRIVATE = 0o600
_MARK = "user.interlock.latest_us"
_reported: set[Path] = set()
_URL_TODO = "Write sqlite:///relative.db, sqlite:////absolute/path.db or the path alone."


def path_of(path_or_url: str) -> Path:
    """The file that a URL or a plain path names."""
    is_url = path_or_url.startswith(_SCHEME)
    name = unquote(_after_slashes(path_or_url)) if is_url else path_or_url
    if not name or "\x00" in name:
        raise BadStoreUrl(f"{path_or_url!r} names no file.", todo=_URL_TODO, facts={"url": path_or_url})
    if name.startswith(":memory:"):
        raise BadStoreUrl(
            "SQLite's :memory: cannot be shared by a writer and a reader.",
            todo="Write memory: for a store in memory.",
            facts={"url": path_or_url},
        )
    return Path(name)


def url_of(path: Path) -> str:
    """The URL of a path, as people see it."""
    return f"sqlite:///{path}"


def check_place(path: Path) -> None:
    """Raise unless a database can be opened or made there; nothing is touched."""
    facts: dict[str, object] = {"path": str(path)}
    if path.is_dir():
        raise BadStoreUrl(f"{path} is a folder, not a database file.", todo="Name a file in it.", facts=facts)
    if not path.parent.is_dir():
        raise BadStoreUrl(
            f"There is no folder {path.parent} to keep {path.name} in.",
            todo="Make the folder, or correct the path.",
            facts=facts,
        )
    # SQLite keeps its log beside the file, so that the folder has to be writable as well.
    for place in (path.parent, path):
        if place.exists() and not os.access(place, os.W_OK):
            raise StoreMisconfigured(
                f"{place} cannot be written to, so nothing could be stored in {path}.",
                todo="Give this user the right to write to it, or choose another path.",
                facts=facts,
            )


def make_private(path: Path) -> None:
    """Create the file for its owner alone; SQLite gives its log and journal the same mode.

    A file that exists keeps its mode, which an operator may have chosen; if every user can read it, that is
    logged once. The file is made without being opened: closing a descriptor of a database would release the
    locks of all other connections that this process has to it.
    """
    real = path.resolve()
    if real.exists():
        _report_readable(real, path)
        return
    try:
        with suppress(FileExistsError):
            os.mknod(real, stat.S_IFREG | PRIVATE)
    except OSError:  # systems where that is for root alone
        with suppress(OSError):  # SQLite says what is wrong, when it opens the file
            os.close(os.open(real, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))


def read_mark(path: Path) -> int | None:
    """Return the latest time that was noted at the file; None if none was, or where that cannot be."""
    try:
        return int(os.getxattr(path, _MARK))
    except (OSError, ValueError, AttributeError):  # not every system and file system has such attributes
        return None


def write_mark(path: Path, latest_us: int) -> bool:
    """Note a time at the file itself, not in it; return whether that can be."""
    try:
        os.setxattr(path, _MARK, b"%d" % latest_us)
    except (OSError, AttributeError):
        return False
    return True


def identity_of(path: Path, *, marked: bool) -> str:
    """Return what tells the file from a copy; its number alone may be given to the next file that is made."""
    return f"{path.stat().st_ino}{' marked' if marked else ''}"


def _report_readable(real: Path, path: Path) -> None:
    if real in _reported:
        return
    mode = stat.S_IMODE(real.stat().st_mode)
    with suppress(OSError):
        if mode & stat.S_IROTH and all(each.stat().st_mode & stat.S_IXOTH for each in real.parents):
            _reported.add(real)
            log.warning(
                "%s can be read by every user of this machine (mode %04o). "
                "If that is not intended: chmod 600 %s*",
                path,
                mode,
                path,
            )


def _after_slashes(url: str) -> str:
    rest = url.removeprefix(_SCHEME)
    if not rest.startswith("///"):
        raise BadStoreUrl(
            f"{url!r} does not have the three or four slashes that belong after 'sqlite:'.",
            todo=_URL_TODO,
            facts={"url": url},
        )
    if "?" in rest or "#" in rest:
        raise BadStoreUrl(
            f"{url!r} has options, and this store takes none.",
            todo="Leave out what follows the path; write %3F or %23 where the name has such a character.",
            facts={"url": url},
        )
    return rest[3:]


def _host_us() -> int:
    return time.time_ns() // 1_000


def _ticks_us() -> int:
    return time.monotonic_ns() // 1_000


class HeldClock:
    """Microseconds since 1970; shared by the threads of one store."""

    def __init__(
        self, host_us: Callable[[], int] = _host_us, ticks_us: Callable[[], int] = _ticks_us
    ) -> None:
        self._host_us = host_us
        self._ticks_us = ticks_us
        self._lock = threading.Lock()
        self._latest_us = 0
        self._latest_ticks_us = ticks_us()

    def read(self, not_before_us: int = 0) -> int:
        """The time, at least as late as any read before and as what is on record."""
        with self._lock:
            ticks_us = self._ticks_us()
            held_us = self._latest_us + ticks_us - self._latest_ticks_us
            self._latest_us = max(self._host_us(), held_us if self._latest_us else 0, not_before_us)
            self._latest_ticks_us = ticks_us
            return self._latest_us


T = TypeVar("T")

APPLICATION_ID = int.from_bytes(b"ILCK", "big")
OLDEST_SQLITE = (3, 35, 0)
MIGRATIONS = migrations_of("interlock.store.sqlite")
_SCHEMA_COLUMNS = ["number", "name", "applied_us"]
_REPLACED = {"records_by_deadline"}
"""What version 1 had otherwise in its first files; migration 2 makes it again."""
_TODO = "Export what you need with the version that made it, and start with a new file."
_RETRY_S = 0.005
_LARGE = 64 * 1_048_576
"""A file of so many bytes takes seconds to migrate."""
_STEP = 1_048_576
"""Between the two places of a step, as in the triggers."""


_EPOCH_US = EPOCH_EVERY_S * 1_000_000


def open_database(
    path: Path, catalogue: Catalogue, clock: HeldClock, timeout_s: float, migrating: Callable[[], None]
) -> sqlite3.Connection:
    """A connection that may write, to a database that is ours and up to date.

    `migrating` is called before the first migration of a file that has data in it.
    """
    check_version(sqlite3.sqlite_version_info)
    check_place(path)
    make_private(path)

    def attempt() -> sqlite3.Connection:
        connection = connect(path)
        try:
            check_owner(connection, path)
            _set_up(connection, path)
            with_lock(connection, lambda: _bring_up_to_date(connection, path, catalogue, clock, migrating))
        except BaseException:
            connection.close()
            raise
        return connection

    return _patiently(attempt, path, timeout_s)


def connect(path: Path) -> sqlite3.Connection:
    """A bare connection. Transactions are ours to begin, and waiting for locks is ours to bound."""
    connection = sqlite3.connect(path, timeout=0.0, isolation_level=None, cached_statements=256)
    try:
        connection.execute("PRAGMA synchronous = FULL")
        # 8 MB: what is claimed and completed lies together, and 64 MB made neither that faster nor records
        # that lie apart, but let the process grow for 400,000 commits. Nor did `mmap_size` help.
        connection.execute("PRAGMA cache_size = -8192")
        # A longer log than the default means that a page which changes often is copied less often.
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        # A statement that changes many rows keeps the pages it changes, to undo itself if the last row is
        # refused. Above 64 kB that went to a file: made, written and removed for each batch.
        connection.execute("PRAGMA temp_store = MEMORY")
    except BaseException:
        connection.close()  # busy, while somebody else sets the file up: it is tried again with another
        raise
    return connection


def check_version(found: tuple[int, ...]) -> None:
    """Raise when the library is older than what the statements need."""
    if found < OLDEST_SQLITE:
        have, need = (".".join(map(str, version)) for version in (found, OLDEST_SQLITE))
        raise StoreTooOld(
            f"This Python brings SQLite {have}; {need} or newer is needed.",
            todo="Use a Python that was built with a newer SQLite.",
            facts={"found": have, "needed": need},
        )


def check_owner(connection: sqlite3.Connection, path: Path) -> None:
    """Raise when the file is somebody else's. It is looked at before anything in it is changed."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master")]
    columns = [row[1] for row in connection.execute("PRAGMA table_info(interlock_schema)")]
    ours = columns == _SCHEMA_COLUMNS if names else True
    # A copy made by `.dump` has lost the number; tables of ours are ours without it.
    if not ours or application not in (0, APPLICATION_ID):
        raise ForeignSchema(
            f"{path} is the database of another program; it was left as it is.",
            todo="Name another file; Interlock keeps its tables in one of its own.",
            facts={"path": str(path), "tables": names[:10], "application_id": application},
        )


def with_lock(connection: sqlite3.Connection, work: Callable[[], T]) -> T:
    """Do it all or not at all, with nobody else writing. A deferred transaction could not wait."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work()
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Several statements see the same database; writers are not held up by it."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")


def applied_version(connection: sqlite3.Connection) -> int:
    """How far the schema has come; 0 for an empty file."""
    there = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'interlock_schema'").fetchone()
    if there is None:
        return 0
    (number,) = connection.execute("SELECT coalesce(max(number), 0) FROM interlock_schema").fetchone()
    return int(number)


def check_history(connection: sqlite3.Connection, path: Path) -> int:
    """Return how far the schema has come; raise unless it came there by the migrations of this program."""
    applied = applied_version(connection)
    if applied > 1:
        kept = dict(connection.execute("SELECT number, fingerprint FROM applied_migrations"))
        check_fingerprints(MIGRATIONS, kept, str(path), todo=_TODO)
    elif applied == 1:
        found = dict(connection.execute("SELECT name, sql FROM sqlite_master"))
        landed = _declared(MIGRATIONS[0])
        if any(found.get(name) != sql for name, sql in landed.items() if name not in _REPLACED):
            raise development_schema(applied, str(path), todo=_TODO)
    return applied


def check_floor(connection: sqlite3.Connection) -> None:
    """Raise if a newer program has migrated the database so that this one must not write any more."""
    (floor,) = connection.execute("PRAGMA user_version").fetchone()
    if floor > len(MIGRATIONS):
        raise too_new(applied_version(connection), len(MIGRATIONS), running=True)


def _declared(migration: Migration) -> dict[str, str]:
    """Return the statements that one migration declares on an empty database, by name."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for statement in statements_of(migration.text):
            connection.execute(statement)
        return dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))


def schema_of(connection: sqlite3.Connection) -> str:
    """All that was declared, as one text."""
    rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type, name")
    return "".join(f"{sql};\n" for (sql,) in rows)


def _patiently(attempt: Callable[[], T], path: Path, timeout_s: float) -> T:
    """Many processes may open a file at once, and switching to a log cannot be waited for by SQLite."""
    give_up_at = time.monotonic() + timeout_s
    while True:
        try:
            return attempt()
        except sqlite3.Error as error:
            if not is_busy(error):
                raise store_error(error, path) from error
            if time.monotonic() > give_up_at:
                raise late(path, timeout_s, "nothing was written") from error
        time.sleep(_RETRY_S)


def _set_up(connection: sqlite3.Connection, path: Path) -> None:
    outstanding(MIGRATIONS, check_history(connection, path))
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreMisconfigured(
            f"SQLite cannot keep a write-ahead log for {path}: the journal mode stays {mode!r}.",
            todo="Keep it on a disk of this host; a network share cannot hold a shared log.",
            facts={"path": str(path), "journal_mode": mode},
        )


def _bring_up_to_date(
    connection: sqlite3.Connection,
    path: Path,
    catalogue: Catalogue,
    clock: HeldClock,
    migrating: Callable[[], None],
) -> None:
    check_owner(connection, path)  # again: another process may have been faster
    applied = check_history(connection, path)
    migrations = outstanding(MIGRATIONS, applied)
    if applied and migrations:
        migrating()
        if path.stat().st_size > _LARGE:
            log.warning(
                "Migrating %s from schema version %d to %d; about a minute for each million records.",
                path,
                applied,
                MIGRATIONS[-1].number,
            )
    for migration in migrations:
        apply_migration(connection, migration, clock.read())
    _keep_fingerprints(connection)
    if connection.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    load_kinds(connection, catalogue)
    _notice_restore(connection, path, clock)


def _notice_restore(connection: sqlite3.Connection, path: Path, clock: HeldClock) -> None:
    """Raise the epoch of a file that is not the one of the last time, or that has gone back since then."""
    kept, epoch, latest_us = connection.execute("SELECT identity, epoch, latest_us FROM progress").fetchone()
    mark = read_mark(path)
    restored = kept != identity_of(path, marked=mark is not None) or (mark or 0) > latest_us
    identity = identity_of(path, marked=write_mark(path, latest_us))
    wanted = max(epoch + restored, least_epoch(clock.read(latest_us)))
    if (kept, epoch) != (identity, wanted):
        connection.execute("UPDATE progress SET identity = ?, epoch = ?", (identity, wanted))


def leave_mark(connection: sqlite3.Connection, path: Path) -> None:
    """Note at the file how late it is, where restoring other contents does not change it."""
    (latest_us,) = connection.execute("SELECT latest_us FROM progress").fetchone()
    write_mark(path, latest_us)


def least_epoch(now_us: int) -> int:
    """Return the smallest epoch that is allowed at a moment."""
    return now_us // _EPOCH_US


def raise_epoch(connection: sqlite3.Connection, least: int, *, by: int = 0) -> int:
    """Return the epoch, which is then no less than `least`, and `by` larger than any before."""
    sql = "UPDATE progress SET epoch = max(epoch, ?) + ? RETURNING epoch"
    [[epoch]] = connection.execute(sql, (least, by)).fetchall()
    return int(epoch)


def apply_migration(connection: sqlite3.Connection, migration: Migration, now_us: int) -> None:
    """Run its statements and remember it, inside the transaction that is open."""
    for statement in statements_of(migration.text):
        connection.execute(statement)
    connection.execute(
        "INSERT INTO interlock_schema VALUES (?, ?, ?)", (migration.number, migration.name, now_us)
    )


def _keep_fingerprints(connection: sqlite3.Connection) -> None:
    kept = dict(connection.execute("SELECT number, fingerprint FROM applied_migrations"))
    connection.executemany(
        "INSERT INTO applied_migrations VALUES (?, ?)",
        [(each.number, each.fingerprint) for each in MIGRATIONS if each.number not in kept],
    )
    floor = floor_of(MIGRATIONS)
    if connection.execute("PRAGMA user_version").fetchone() != (floor,):
        connection.execute(f"PRAGMA user_version = {floor}")


def statements_of(sql: str) -> Iterator[str]:
    """One statement after the other: the driver's way to run a script would commit in between."""
    statement = ""
    for line in sql.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def load_kinds(connection: sqlite3.Connection, kinds: Catalogue) -> None:
    """Load the tables of these kinds, as far as the file has others or none."""
    loaded = dict(connection.execute("SELECT name, fingerprint FROM kinds"))
    for kind in kinds.values():
        if loaded.get(kind.name) != kind.fingerprint:
            _load_kind(connection, kind)


def _load_kind(connection: sqlite3.Connection, kind: Kind) -> None:
    """Other kinds stay: a program that knows fewer of them may share the database.

    So do places: records are found by them, and another program may have been quicker to give them out.
    """
    name = kind.name
    connection.execute("INSERT OR REPLACE INTO kinds VALUES (?, ?)", (name, kind.fingerprint))
    connection.execute("UPDATE states SET known = 0, terminal = 0 WHERE kind = ?", (name,))
    connection.executemany(
        "INSERT INTO states (kind, name, terminal) VALUES (?, ?, ?) ON CONFLICT (kind, name)"
        " DO UPDATE SET known = 1, terminal = excluded.terminal",
        [(name, state, state in kind.ended) for state in kind.states],
    )
    places = places_of(connection)[name] | {"": 0}
    creations = [("", state) for state in kind.states if kind.allows("", state)]
    connection.execute("DELETE FROM paths WHERE kind = ?", (name,))
    connection.executemany(
        "INSERT INTO paths VALUES (?, ?, ?, ?)",
        [
            (places[source] * _STEP + places[target], name, source, target)
            for source, target in (*creations, *sorted(kind.paths))
        ],
    )


def places_of(connection: sqlite3.Connection) -> dict[str, dict[str, int]]:
    """The number of each kind and state; once given it never changes."""
    places: dict[str, dict[str, int]] = {}
    for place, kind, state in connection.execute("SELECT place, kind, name FROM states"):
        places.setdefault(kind, {})[state] = place
    return places
