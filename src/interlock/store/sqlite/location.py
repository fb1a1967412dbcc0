"""Where a database file lies: from a URL to a path, and whether a database can be there at all."""

from __future__ import annotations

import logging
import os
import stat
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

from interlock.errors import BadStoreUrl, StoreMisconfigured

_SCHEME = "sqlite:"
log = logging.getLogger("interlock.store")

PRIVATE = 0o600
_MARK = "user.interlock.latest_us"
_reported: set[Path] = set()
_TODO = "Write sqlite:///relative.db, sqlite:////absolute/path.db or the path alone."


def path_of(path_or_url: str) -> Path:
    """The file that a URL or a plain path names."""
    is_url = path_or_url.startswith(_SCHEME)
    name = unquote(_after_slashes(path_or_url)) if is_url else path_or_url
    if not name or "\x00" in name:
        raise BadStoreUrl(f"{path_or_url!r} names no file.", todo=_TODO, facts={"url": path_or_url})
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
            todo=_TODO,
            facts={"url": url},
        )
    if "?" in rest or "#" in rest:
        raise BadStoreUrl(
            f"{url!r} has options, and this store takes none.",
            todo="Leave out what follows the path; write %3F or %23 where the name has such a character.",
            facts={"url": url},
        )
    return rest[3:]
