"""Permissions on the database file, its folder and its log."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

from interlock.store.permissions import Permission, Severity
from interlock.store.sqlite.database import is_readable_by_all

_LOGS = ("-wal", "-shm")
"""Files that SQLite keeps beside the database while it is open."""


def permissions_of(path: Path) -> list[Permission]:
    """Return what this user may do with a database file."""
    real = path.resolve()
    found = [_unwritable(each, path) for each in (real.parent, real, *_logs_of(real)) if not _writable(each)]
    if found:
        return found
    if real.exists() and is_readable_by_all(real):
        return [
            Permission(
                sentence=f"Every user of this machine can read {path} (mode {_mode(real):04o}).",
                missing=Severity.LATER,
                todo=f"chmod 600 {path}*",
            )
        ]
    private = f"; other users cannot read it (mode {_mode(real):04o})" if real.exists() else ""
    return [Permission(sentence=f"{path} and its folder can be written{private}.")]


def _logs_of(real: Path) -> list[Path]:
    return [log for end in _LOGS if (log := real.with_name(real.name + end)).exists()]


def _writable(place: Path) -> bool:
    needed = os.R_OK | os.W_OK | (os.X_OK if place.is_dir() else 0)
    return not place.exists() or os.access(place, needed)


def _unwritable(place: Path, path: Path) -> Permission:
    what = "the folder in which SQLite keeps its log" if place.is_dir() else "a file of the database"
    owner = place.stat().st_uid
    is_ours = owner == os.geteuid()
    return Permission(
        sentence=f"{place}, {what}, cannot be written by {_name_of(os.geteuid())}: it belongs to "
        f"{_name_of(owner)} (mode {_mode(place):04o}).",
        missing=Severity.NOW,
        todo=f"chmod u+rw{'x' if place.is_dir() else ''} {place}; where that is not enough, its disk may be "
        "mounted read-only."
        if is_ours
        else f"Run as {_name_of(owner)}, or: chown {_name_of(os.geteuid())} {path.absolute().parent} {path}*",
    )


def _mode(place: Path) -> int:
    return stat.S_IMODE(place.stat().st_mode)


def _name_of(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:  # a container may have users without a name
        return f"user {user}"
