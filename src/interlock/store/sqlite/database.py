"""The database file: its path, its clock, opening it, and migrating its schema.

The clock is the host's, made monotonic. Within one process: when the host's clock is set back, time continues
at the speed of the monotonic clock, so that deadlines still pass. Between processes: each transaction begins
no earlier than the latest one on record. The price is that a clock which was once far ahead keeps the
database ahead; all its times stay in order.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote

from interlock.errors import BadStoreUrl, ForeignSchema, StoreMisconfigured, StoreTooOld
from interlock.store.catalogue import Catalogue, StoredKind
from interlock.store.migrations import (
    Migration,
    check_fingerprints,
    development_schema,
    floor_of,
    migrations_of,
    outstanding,
    too_new,
)
from interlock.store.sqlite.failures import is_busy, store_error, timeout_error
from interlock.store.validation import EPOCH_EVERY_S

_SCHEME = "sqlite:"
log: logging.Logger = logging.getLogger("interlock.store")

PRIVATE = 0o600
_MARK = "user.interlock.latest_us"
_reported: set[Path] = set()
_URL_TODO = "Write sqlite:///relative.db, sqlite:////absolute/path.db or the path alone."


def path_of(path_or_url: str) -> Path:
    """Return the file of a URL or a plain path."""
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
    """Return the URL of a path, for people."""
    return f"sqlite:///{path}"


def check_place(path: Path) -> None:
    """Raise unless a database can be opened or created there.

    It touches nothing.
    """
    facts: dict[str, object] = {"path": str(path)}
    if path.is_dir():
        raise BadStoreUrl(f"{path} is a folder, not a database file.", todo="Name a file in it.", facts=facts)
    if not path.parent.is_dir():
        raise BadStoreUrl(
            f"There is no folder {path.parent} for {path.name}.",
            todo="Make the folder, or correct the path.",
            facts=facts,
        )
    # SQLite keeps its log beside the file, so the folder has to be writable as well.
    for place in (path.parent, path):
        if place.exists() and not os.access(place, os.W_OK):
            raise StoreMisconfigured(
                f"{place} cannot be written to, so nothing could be stored in {path}.",
                todo="Give this user the right to write to it, or choose another path.",
                facts=facts,
            )


def make_private(path: Path) -> None:
    """Create the file for its owner only.

    SQLite gives its log and journal the same mode.

    An existing file keeps its mode, which an operator may have chosen; if every user can read it, that is
    logged once. The file is created without being opened: closing a descriptor of a database would release
    the locks of all other connections that this process has to it.
    """
    real = path.resolve()
    if real.exists():
        _report_readable(real, path)
        return
    try:
        with suppress(FileExistsError):
            os.mknod(real, stat.S_IFREG | PRIVATE)
    except OSError:  # systems that allow this only for root
        with suppress(OSError):  # SQLite reports the error when it opens the file
            os.close(os.open(real, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))


def read_mark(path: Path) -> int | None:
    """Return the latest time from an attribute of the file, or None.

    It is None if there is none, or if attributes are unsupported.
    """
    try:
        return int(os.getxattr(path, _MARK))
    except (OSError, ValueError, AttributeError):  # not every system and file system supports attributes
        return None


def write_mark(path: Path, latest_us: int) -> bool:
    """Store a time as an attribute of the file, not in it.

    Return whether that is supported.
    """
    try:
        os.setxattr(path, _MARK, b"%d" % latest_us)
    except (OSError, AttributeError):
        return False
    return True


def identity_of(path: Path, *, marked: bool) -> str:
    """Return the identity of the file.

    Another file may get the same inode, so the inode alone is not enough.
    """
    return f"{path.stat().st_ino}{' marked' if marked else ''}"


def is_readable_by_all(real: Path) -> bool:
    """Return whether every user of this machine can read an existing file."""
    with suppress(OSError):
        return bool(
            real.stat().st_mode & stat.S_IROTH
            and all(each.stat().st_mode & stat.S_IXOTH for each in real.parents)
        )
    return False


def _report_readable(real: Path, path: Path) -> None:
    if real not in _reported and is_readable_by_all(real):
        _reported.add(real)
        log.warning(
            "%s can be read by every user of this machine (mode %04o). "
            "If that is not intended: chmod 600 %s*",
            path,
            stat.S_IMODE(real.stat().st_mode),
            path,
        )


def _after_slashes(url: str) -> str:
    rest = url.removeprefix(_SCHEME)
    if not rest.startswith("///"):
        raise BadStoreUrl(
            f"{url!r} needs three or four slashes after 'sqlite:'.",
            todo=_URL_TODO,
            facts={"url": url},
        )
    if "?" in rest or "#" in rest:
        raise BadStoreUrl(
            f"{url!r} has options, but this store has none.",
            todo="Leave out what follows the path; write %3F or %23 where the name has such a character.",
            facts={"url": url},
        )
    return rest[3:]


class HeldClock:
    """Microseconds since 1970; shared by the threads of one store."""

    def __init__(
        self,
        host_ns: Callable[[], int] = time.time_ns,
        ticks_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._host_ns = host_ns
        self._ticks_ns = ticks_ns
        self._lock = threading.Lock()
        self._latest_us = 0
        self._latest_ticks_us = ticks_ns() // 1_000

    def read(self, not_before_us: int = 0) -> int:
        """Return the time, at least as late as any earlier one and that on record."""
        with self._lock:
            ticks_us = self._ticks_ns() // 1_000
            held_us = self._latest_us + ticks_us - self._latest_ticks_us
            self._latest_us = max(self._host_ns() // 1_000, held_us if self._latest_us else 0, not_before_us)
            self._latest_ticks_us = ticks_us
            return self._latest_us


T = TypeVar("T")

APPLICATION_ID = int.from_bytes(b"ILCK", "big")
OLDEST_SQLITE = (3, 35, 0)
MIGRATIONS = migrations_of("interlock.store.sqlite")
_SCHEMA_COLUMNS = ["number", "name", "applied_us"]
_REPLACED = {"records_by_deadline"}
"""Objects that early files of version 1 had in another form; migration 2 creates them again."""
_TODO = "Export what you need with the version that made it, and start with a new file."
_RETRY_S = 0.005
_LARGE = 64 * 1_048_576
"""Size from which a file takes seconds to migrate."""
_STEP = 1_048_576
"""Between the two places of a step, as in the triggers."""


_EPOCH_US = EPOCH_EVERY_S * 1_000_000


def open_database(
    path: Path, catalogue: Catalogue, clock: HeldClock, timeout_s: float, migrating: Callable[[], None]
) -> sqlite3.Connection:
    """Return a writing connection to a database of ours, up to date.

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

    return retry_while_busy(attempt, path, timeout_s)


def connect(path: Path) -> sqlite3.Connection:
    """Return a bare connection.

    The store controls transactions and lock timeouts.
    """
    connection = sqlite3.connect(path, timeout=0.0, isolation_level=None, cached_statements=256)
    try:
        connection.execute("PRAGMA synchronous = FULL")
        # 8 MB: claimed and completed records are adjacent, and 64 MB made neither those nor scattered records
        # faster, but let the process grow for 400,000 commits. Nor did `mmap_size` help.
        connection.execute("PRAGMA cache_size = -8192")
        # With a longer log than the default, a frequently changed page is copied less often.
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        # A statement that changes many rows keeps the old pages, to undo itself if the last row is refused.
        # Above 64 kB these went to a file: created, written and removed for each batch.
        connection.execute("PRAGMA temp_store = MEMORY")
    except BaseException:
        connection.close()  # busy, while another process sets up the file: retried with a new connection
        raise
    return connection


def check_version(found: tuple[int, ...]) -> None:
    """Raise if the library is too old for the statements."""
    if found < OLDEST_SQLITE:
        have, need = (".".join(map(str, version)) for version in (found, OLDEST_SQLITE))
        raise StoreTooOld(
            f"This Python brings SQLite {have}; {need} or newer is needed.",
            todo="Use a Python that was built with a newer SQLite.",
            facts={"found": have, "needed": need},
        )


def check_owner(connection: sqlite3.Connection, path: Path) -> None:
    """Raise if the file belongs to another program.

    Nothing in it has been changed until then.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master")]
    columns = [row[1] for row in connection.execute("PRAGMA table_info(interlock_schema)")]
    ours = columns == _SCHEMA_COLUMNS if names else True
    # A copy made by `.dump` has lost the number; our tables identify it without.
    if not ours or application not in (0, APPLICATION_ID):
        raise ForeignSchema(
            f"{path} is the database of another program; it was not changed.",
            todo="Name another file; Interlock keeps its tables in one of its own.",
            facts={"path": str(path), "tables": names[:10], "application_id": application},
        )


def with_lock(connection: sqlite3.Connection, work: Callable[[], T]) -> T:
    """Run work atomically under the write lock.

    A deferred transaction could not wait for the lock.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work()
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


def applied_version(connection: sqlite3.Connection) -> int:
    """Return the schema version; 0 for an empty file."""
    there = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'interlock_schema'").fetchone()
    if there is None:
        return 0
    (number,) = connection.execute("SELECT coalesce(max(number), 0) FROM interlock_schema").fetchone()
    return int(number)


def check_history(connection: sqlite3.Connection, path: Path) -> int:
    """Return the schema version; raise if other migrations led to it.

    These are migrations that this program does not have.
    """
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
    """Raise if a newer migration keeps this program from writing."""
    (floor,) = connection.execute("PRAGMA user_version").fetchone()
    if floor > len(MIGRATIONS):
        raise too_new(applied_version(connection), len(MIGRATIONS), running=True)


def _declared(migration: Migration) -> dict[str, str]:
    """Return the statements that a migration declares, by name.

    They are read from an empty database.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for statement in statements_of(migration.text):
            connection.execute(statement)
        return dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))


def retry_while_busy(attempt: Callable[[], T], path: Path, timeout_s: float) -> T:
    """Retry while the file is busy, until the timeout.

    Many processes may open it at once, and SQLite cannot wait for the switch to a log.
    """
    give_up_at = time.monotonic() + timeout_s
    while True:
        try:
            return attempt()
        except sqlite3.Error as error:
            if not is_busy(error):
                raise store_error(error, path) from error
            if time.monotonic() > give_up_at:
                raise timeout_error(path, timeout_s, "nothing was written") from error
        time.sleep(_RETRY_S)


def _set_up(connection: sqlite3.Connection, path: Path) -> None:
    outstanding(MIGRATIONS, check_history(connection, path))
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreMisconfigured(
            f"SQLite cannot keep a write-ahead log for {path}: the journal mode stays {mode!r}.",
            todo="Put it on a local disk; a network share cannot hold a shared log.",
            facts={"path": str(path), "journal_mode": mode},
        )


def _bring_up_to_date(
    connection: sqlite3.Connection,
    path: Path,
    catalogue: Catalogue,
    clock: HeldClock,
    migrating: Callable[[], None],
) -> None:
    check_owner(connection, path)  # again, since another process may have been faster
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
    """Raise the epoch if the file was replaced or has gone back."""
    kept, epoch, latest_us = connection.execute("SELECT identity, epoch, latest_us FROM progress").fetchone()
    mark = read_mark(path)
    restored = kept != identity_of(path, marked=mark is not None) or (mark or 0) > latest_us
    identity = identity_of(path, marked=write_mark(path, latest_us))
    wanted = max(epoch + restored, least_epoch(clock.read(latest_us)))
    if (kept, epoch) != (identity, wanted):
        connection.execute("UPDATE progress SET identity = ?, epoch = ?", (identity, wanted))


def leave_mark(connection: sqlite3.Connection, path: Path) -> None:
    """Store the latest time as an attribute of the file.

    It survives replacing the content of the file.
    """
    (latest_us,) = connection.execute("SELECT latest_us FROM progress").fetchone()
    write_mark(path, latest_us)


def least_epoch(now_us: int) -> int:
    """Return the minimum epoch at a time."""
    return now_us // _EPOCH_US


def raise_epoch(connection: sqlite3.Connection, least: int, *, by: int = 0) -> int:
    """Return the epoch, raised to at least `least`.

    With `by` it is also above any earlier one.
    """
    sql = "UPDATE progress SET epoch = max(epoch, ?) + ? RETURNING epoch"
    [[epoch]] = connection.execute(sql, (least, by)).fetchall()
    return int(epoch)


def apply_migration(connection: sqlite3.Connection, migration: Migration, now_us: int) -> None:
    """Run its statements and record it, inside the open transaction."""
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


@cache
def statements_of(sql: str) -> tuple[str, ...]:
    """Return the statements one by one.

    The driver's way to run a script would commit in between.
    """
    statements, statement = [], ""
    for line in sql.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            statements.append(statement)
            statement = ""
    return tuple(statements)


def load_kinds(connection: sqlite3.Connection, kinds: Catalogue) -> None:
    """Load the tables of these kinds, if the file has other ones or none."""
    loaded = dict(connection.execute("SELECT name, fingerprint FROM kinds"))
    for kind in kinds.values():
        if loaded.get(kind.name) != kind.fingerprint:
            _load_kind(connection, kind)


def _load_kind(connection: sqlite3.Connection, kind: StoredKind) -> None:
    """Load a kind; keep the other kinds.

    A program with fewer kinds may share the database. So are places: records are found by them, and another
    program may have assigned them first.
    """
    name = kind.name
    connection.execute("INSERT OR REPLACE INTO kinds VALUES (?, ?)", (name, kind.fingerprint))
    connection.execute("UPDATE states SET known = 0, terminal = 0 WHERE kind = ?", (name,))
    connection.executemany(
        "INSERT INTO states (kind, name, terminal) VALUES (?, ?, ?) ON CONFLICT (kind, name)"
        " DO UPDATE SET known = 1, terminal = excluded.terminal",
        [(name, state, state in kind.ended) for state in kind.states],
    )
    found = connection.execute("SELECT name, place FROM states WHERE kind = ?", (name,))
    places = {"": 0, **dict(found)}
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
    """Return the number of each kind and state, which never changes."""
    places: dict[str, dict[str, int]] = {}
    for place, kind, state in connection.execute("SELECT place, kind, name FROM states"):
        places.setdefault(kind, {})[state] = place
    return places
