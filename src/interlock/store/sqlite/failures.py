"""Errors of the driver as errors of ours: the cause, whether anything was written, the advice."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from interlock.errors import InvalidRecord, StoreError, StoreMisconfigured, StoreUnavailable, TooLarge

NOTHING = "nothing was written"
UNKNOWN = "whether it was written is unknown"

BAD_DATA = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    OverflowError,
    UnicodeError,
)
"""Exceptions caused by one caller's data; all others concern the whole database."""

_UNUSABLE = {
    sqlite3.SQLITE_NOTADB: ("is not an SQLite database", "Name another file; this one was not changed."),
    sqlite3.SQLITE_CORRUPT: ("is damaged", "Restore it from a copy, or see what `.recover` can save."),
    sqlite3.SQLITE_READONLY: ("cannot be written to", "Give this user the right to write to it."),
    sqlite3.SQLITE_PERM: ("cannot be written to", "Give this user the right to write to it."),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", "See that the folder is there and can be written to."),
    sqlite3.SQLITE_PROTOCOL: ("cannot be locked", "Put it on a local disk, not on a network share."),
}


def store_error(error: Exception, path: Path, outcome: str = NOTHING) -> StoreError:
    """Return our error for an error of the driver.

    It contains no text of a record.
    """
    if isinstance(error, sqlite3.Error):
        return _from_driver(error, path, outcome)
    return _unkeepable(error)


def is_busy(error: sqlite3.Error) -> bool:
    """Return whether another connection was in the way.

    A retry may succeed then.
    """
    return code_of(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def code_of(error: sqlite3.Error) -> int:
    """Return the primary result code; 0 if the driver itself raised."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def timeout_error(path: Path, timeout_s: float, outcome: str) -> StoreUnavailable:
    """Return the error of a passed deadline."""
    return StoreUnavailable(
        f"The database {path} did not answer within {timeout_s:g} s; {outcome}.",
        todo=_next_step(outcome) + " If it lasts, look for a process that holds the database or a slow disk.",
        facts={"path": str(path), "timeout_s": timeout_s, "outcome": outcome},
    )


def not_open(path: Path) -> StoreUnavailable:
    """Return the error of a closed or unopened store."""
    return StoreUnavailable(
        f"The store on {path} is not open; {NOTHING}.",
        todo="Open a store first, and use it only until it is closed.",
        facts={"path": str(path), "outcome": NOTHING},
    )


def _from_driver(error: sqlite3.Error, path: Path, outcome: str) -> StoreError:
    code = code_of(error)
    facts: dict[str, object] = {"path": str(path), "sqlite": getattr(error, "sqlite_errorname", str(error))}
    if code in _UNUSABLE:
        what, todo = _UNUSABLE[code]
        return StoreMisconfigured(f"{path} {what}.", todo=todo, facts=facts)
    if code == sqlite3.SQLITE_FULL:
        return StoreUnavailable(
            f"The disk that holds {path} is full; {NOTHING}.",
            todo="Free some space and try again; the store needs no restart.",
            facts=facts | {"outcome": NOTHING},
        )
    if code == sqlite3.SQLITE_TOOBIG:
        return TooLarge(f"A value is larger than SQLite allows: {error}.", todo="Store large data elsewhere.")
    if code == sqlite3.SQLITE_CONSTRAINT:
        return StoreMisconfigured(
            f"The database {path} refused what this program's tables allow: {error}; {NOTHING}.",
            todo="Another program has loaded other tables into it. Run one version of them, and restart.",
            facts=facts | {"outcome": NOTHING},
        )
    if isinstance(error, sqlite3.InterfaceError | sqlite3.ProgrammingError | sqlite3.DataError):
        return _unkeepable(error)
    return StoreUnavailable(
        f"The database {path} failed ({error}); {outcome}.",
        todo=_next_step(outcome),
        facts=facts | {"outcome": outcome},
    )


def _unkeepable(error: Exception) -> InvalidRecord:
    return InvalidRecord(
        f"SQLite cannot store or search for such a value: {error}.",
        todo="Correct it and send it again; nothing was written.",
    )


def _next_step(outcome: str) -> str:
    return "Try again." if outcome == NOTHING else "Read to find out, or repeat it with its request id."
