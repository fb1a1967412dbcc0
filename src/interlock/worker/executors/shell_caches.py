"""What shell jobs keep for later ones of the same repository: dependencies, what a compiler has made.

    {"key": "pip-3.12", "files": ["requirements*.txt"], "path": [".cache/pip"], "restore_keys": ["pip-"]}

Before the steps, what was saved under the key is put in its place; without it, the newest whose key begins
with one of `restore_keys`. With `files`, a digest of what these files say becomes part of the key, so that
it changes when they do. After the steps, when they have gone well, what is there is saved under the key,
unless that is what was found. Whatever goes wrong here is told in the log and stops nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import msgspec

from interlock.errors import InterlockError, InvalidArguments, ServerRefused
from interlock.wire.caches import MAX_PREFIXES, CacheRefused, checked_key
from interlock.worker.archives import found_in, inside, pack
from interlock.worker.context import Context
from interlock.worker.executors.shell_artifacts import unless_cancelled
from interlock.worker.extraction import unpack
from interlock.worker.safe_paths import Beneath

MOST = 10
"""How many caches a job may have."""
DIGEST = 20
PIECE = 1_048_576


class Cache(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Some files and folders, and what they are saved under."""

    key: str
    path: str | list[str]
    """From where the job runs on, inside its folder; no patterns."""
    files: list[str] = []
    """What these files say is part of the key; `*`, `?`, `[…]` and `**` stand for what they do in a shell."""
    restore_keys: list[str] = []
    """What the key of another one may begin with; the first goes before the others."""

    @property
    def paths(self) -> list[str]:
        """All of them."""
        return [self.path] if isinstance(self.path, str) else self.path


class Caches:
    """The caches of one attempt: what was found for each, and what is to be saved in the end."""

    def __init__(self, ctx: Context, wanted: Sequence[Cache], base: Path, workspace: Path) -> None:
        self._ctx = ctx
        self._wanted = wanted
        self._workspace = workspace
        self._base = inside(workspace.resolve(), base)
        self._keys: list[str | None] = []
        """Under what each is to be saved; None where that need not be."""

    async def restore(self) -> None:
        """Put in its place what there is."""
        for one in self._wanted:
            self._keys.append(None)
            async with self._forgiving(f"The cache {one.key} is not used"):
                key = await asyncio.to_thread(_key, one, self._base)
                if not await self._restored(one, key):
                    self._keys[-1] = key

    async def save(self) -> None:
        """Keep what was not found."""
        for one, key in zip(self._wanted, self._keys, strict=True):
            if key is not None:
                async with self._forgiving(f"The cache {key} is not saved"):
                    await self._save(one, key)

    async def _restored(self, one: Cache, key: str) -> bool:
        """Whether what is saved under the very key is in its place."""
        with _scratch(self._workspace) as folder:
            packed = folder / "packed"
            view = await unless_cancelled(self._ctx, self._ctx.caches.fetch(key, one.restore_keys, packed))
            if view is None:
                self._ctx.log(f"Cache: nothing is saved under {key}.")
                return False
            put = await asyncio.to_thread(unpack, packed, one.paths, folder / "unpacked", self._base)
        left = [path for path in one.paths if path not in put]
        beside = f"; {', '.join(left)} stays as it is" if left else ""
        self._ctx.log(f"Cache: {', '.join(put) or 'nothing'} from {view.key}, {view.size:,} bytes{beside}.")
        return view.key == key

    async def _save(self, one: Cache, key: str) -> None:
        found = await asyncio.to_thread(found_in, self._base, one.paths)
        if not found.paths:
            self._ctx.log(f"Cache: there is no {', '.join(one.paths)} to be saved.", "warning")
            return
        with _scratch(self._workspace) as folder:
            packed = folder / "packed"
            left_out = await asyncio.to_thread(pack, self._base, found.paths, packed, cache=True)
            view = await unless_cancelled(self._ctx, self._ctx.caches.keep(key, packed))
        beside = f", without {left_out:,} links to elsewhere or special files" if left_out else ""
        self._ctx.log(f"Cache: saved {key}, {view.size:,} bytes{beside}.")

    @contextlib.asynccontextmanager
    async def _forgiving(self, what: str) -> AsyncIterator[None]:
        try:
            yield
        except (InterlockError, OSError) as error:
            told = error.sentence if isinstance(error, InterlockError) else str(error)
            refused = isinstance(error, ServerRefused) and error.facts.get("code") == CacheRefused.code
            level = "info" if refused or isinstance(error, CacheRefused) else "warning"
            self._ctx.log(f"{what}: {told}", level)


async def restored(ctx: Context, wanted: Sequence[Cache], base: Path, workspace: Path) -> Caches | None:
    """The caches of an attempt, with what there is in its place; None when it has none."""
    if not wanted:
        return None
    caches = Caches(ctx, wanted, base, workspace)
    await caches.restore()
    return caches


def check_caches(caches: Sequence[Cache]) -> None:
    """Raise before anything is done for what could not be saved in the end."""
    if len(caches) > MOST:
        raise InvalidArguments(f"A job has at most {MOST} caches.", todo="Put paths together under one key.")
    for one in caches:
        for key in (one.key, *one.restore_keys):
            checked_key(key)
        plain = [path for path in one.paths if path.strip("./") and not set("*?[") & set(path)]
        if len(one.restore_keys) > MAX_PREFIXES or not one.paths or plain != one.paths:
            raise InvalidArguments(
                f"The cache {one.key} cannot be as it is said.",
                todo=f"Give paths inside the folder, no patterns, and at most {MAX_PREFIXES} restore_keys.",
                facts={"key": one.key},
            )


def _key(one: Cache, base: Path) -> str:
    """The key, with a digest of what the files say and of what they are called."""
    if not one.files:
        return one.key
    base, digest = base.resolve(), hashlib.sha256()
    with Beneath(base) as folder:
        for path in found_in(base, one.files).paths:
            if path.is_file():
                said = hashlib.sha256()
                with folder.open(path.relative_to(base).parts) as file:
                    while piece := file.read(PIECE):
                        said.update(piece)
                named = os.fsencode(path.relative_to(base).as_posix())
                digest.update(named + f"\0{said.hexdigest()}\n".encode())
    return checked_key(f"{one.key}-{digest.hexdigest()[:DIGEST]}")


@contextlib.contextmanager
def _scratch(workspace: Path) -> Iterator[Path]:
    """A folder beside the checkout: on the same disk, so that what is unpacked in it can be moved."""
    with tempfile.TemporaryDirectory(prefix="cache-", dir=workspace) as folder:
        yield Path(folder)
