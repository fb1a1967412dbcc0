"""Where a database file lies: from a URL to a path, and whether a database can be there at all."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote

from interlock.errors import BadStoreUrl, StoreMisconfigured

_SCHEME = "sqlite:"
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
