"""Files of shell jobs: the workspace of an attempt, artifacts saved from it, caches restored into it.

A workspace is a fresh folder that is removed with its attempt. It is locked by its worker. A killed worker
leaves its folder behind, unlocked, and the next one to make a folder in the same place removes it; the lock
works wherever both can see the folder, even from two containers.

Artifacts are saved when the steps have ended, even if one has failed. Caches are for later jobs of the same
repository:

    {"key": "pip-3.12", "files": ["requirements*.txt"], "path": [".cache/pip"], "restore_keys": ["pip-"]}

Before the steps, the cache of that key is restored; without one, the newest whose key begins with one of
`restore_keys`. With `files`, a digest of their contents becomes part of the key. After successful steps, the
paths are saved under the key, unless that cache was restored. A failure of a cache is logged and does not
fail the job.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from interlock.errors import CacheRefused, InterlockError, InvalidArguments, ServerRefused, StoreUnavailable
from interlock.wire.artifacts import (
    MAX_PREFIXES,
    checked_key,
    checked_name,
)
from interlock.worker.archives import PACKED, Beneath, copy, found_in, pack, resolve_inside
from interlock.worker.context import Context
from interlock.worker.extraction import unpack
from interlock.worker.outcomes import StepFailed

PREFIX = "interlock-workspace-"
YOUNG_S = 60.0
"""A folder that is younger may not be locked yet."""


class Workspace:
    """A folder that exists while the context is entered."""

    def __init__(self, under: Path | None = None) -> None:
        self._under = Path(tempfile.gettempdir()) if under is None else under
        self._folder: Path | None = None
        self._lock = -1

    async def __aenter__(self) -> Path:
        await asyncio.to_thread(remove_left, self._under)
        self._folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=self._under))
        self._lock = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        return self._folder

    async def __aexit__(self, *_: object) -> None:
        assert self._folder is not None
        try:
            await asyncio.shield(asyncio.to_thread(remove, self._folder))
        finally:
            os.close(self._lock)


def remove_left(under: Path) -> None:
    """Remove the folders of workers that have ended."""
    oldest = time.time() - YOUNG_S  # compared with the time of the file system
    for folder in under.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.lstat().st_mtime > oldest or folder.is_symlink():
                continue
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(folder)
            finally:
                os.close(lock)


def remove(folder: Path) -> None:
    """Remove a folder with its content, without following links.

    Read-only files are removed, too. Subfolders are moved up into it before they are emptied, so that neither
    depth nor the length of a path matters. All paths are reached through descriptors: a leftover process of a
    step may swap a folder for a link meanwhile.
    """
    with contextlib.suppress(OSError):
        around = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            within = _entered(folder.name, around)
            try:
                _empty(within)
            finally:
                os.close(within)
            os.rmdir(folder.name, dir_fd=around)
        finally:
            os.close(around)


def _empty(root: int) -> None:
    folders = _without_files(root, root)
    while folders:
        name = folders.pop()
        with contextlib.suppress(OSError):
            within = _entered(name, root)
            try:
                folders += _without_files(within, root)
            finally:
                os.close(within)
            os.rmdir(name, dir_fd=root)


def _without_files(within: int, root: int) -> list[str]:
    """Remove the files of a folder; move its folders up and return them."""
    with os.scandir(within) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    folders = []
    for name, is_folder in found:
        with contextlib.suppress(OSError):
            if is_folder and within == root:
                folders.append(name)
            elif is_folder:
                os.close(_entered(name, within))  # only writable folders can be moved
                moved = f"removed-{secrets.token_hex(16)}"
                os.rename(name, moved, src_dir_fd=within, dst_dir_fd=root)
                folders.append(moved)
            else:
                os.unlink(name, dir_fd=within)
    return folders


def _entered(name: str, within: int) -> int:
    """Open a folder of any mode; raise OSError if it is a link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        place = os.open(name, flags, dir_fd=within)
    except PermissionError:
        # Never for root. For others a link could be changed instead, by a process with the same rights.
        os.chmod(name, 0o700, dir_fd=within)
        place = os.open(name, flags, dir_fd=within)
    with contextlib.suppress(OSError):
        os.fchmod(place, 0o700)
    return place


T = TypeVar("T")


class ShellArtifact(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Files stored under a name: one file unchanged, anything else as a tar."""

    name: str
    path: str | list[str]
    """Paths relative to the folder of the job; `*`, `?`, `[…]` and `**` match as in a shell."""

    @property
    def paths(self) -> list[str]:
        """All paths."""
        return [self.path] if isinstance(self.path, str) else self.path


def check_names(artifacts: Sequence[ShellArtifact]) -> None:
    """Raise, before any step, if an artifact could not be stored at the end."""
    for one in artifacts:
        checked_name(one.name if one.name.endswith(PACKED) else one.name + PACKED)


async def leave_behind(ctx: Context, artifacts: Sequence[ShellArtifact], base: Path, *, failed: bool) -> None:
    """Store all artifacts; a failure to do so fails a successful job."""
    trouble: StepFailed | None = None
    for one in artifacts:
        try:
            await unless_cancelled(ctx, _leave(ctx, one, base))
        except (InterlockError, OSError) as error:
            reason = error.sentence if isinstance(error, InterlockError) else str(error)
            away = isinstance(error, StoreUnavailable | OSError)
            what = f"The artifact {one.name!r} was not stored: {reason}"
            ctx.log(what, "error")
            trouble = trouble or StepFailed(
                what, exit_code=None, output="", failure_class="infra" if away else "user"
            )
    if trouble is not None and not failed:
        raise trouble


async def unless_cancelled(ctx: Context, moving: Coroutine[Any, Any, T]) -> T:
    """Return the result of a transfer; stop it when the job is cancelled."""
    task = asyncio.ensure_future(moving)
    cancelled = asyncio.ensure_future(ctx.wait_cancelled())
    try:
        await asyncio.wait((task, cancelled), return_when=asyncio.FIRST_COMPLETED)
        ctx.raise_if_cancelled()
        return task.result()
    finally:
        for each in (task, cancelled):
            each.cancel()
        await asyncio.wait((task, cancelled))


async def _leave(ctx: Context, one: ShellArtifact, base: Path) -> None:
    found = await asyncio.to_thread(found_in, base, one.paths)
    if not found.paths:
        ctx.log(f"The artifact {one.name!r} is empty: there is no {', '.join(one.paths)}.", "warning")
        return
    base = base.resolve()
    with tempfile.TemporaryDirectory(prefix="interlock-artifact-") as folder:
        packed = Path(folder) / "packed"
        if found.plain:
            await asyncio.to_thread(copy, base, found.paths[0], packed)
            kept = await ctx.artifact(one.name, packed)
        else:
            left_out = await asyncio.to_thread(pack, base, found.paths, packed)
            if left_out:
                ctx.log(f"Of {one.name!r} {left_out:,} links or special files are left out.", "warning")
            name = one.name if one.name.endswith(PACKED) else one.name + PACKED
            kept = await ctx.artifact(name, packed)
    ctx.log(f"Kept {kept.name}: {kept.size:,} bytes.")


MOST = 10
"""Maximum number of caches of a job."""
DIGEST = 20
PIECE = 1_048_576


class Cache(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Some files and folders, and their cache key."""

    key: str
    path: str | list[str]
    """Paths relative to the folder of the job, inside it; no patterns."""
    files: list[str] = []
    """Files whose contents are part of the key; `*`, `?`, `[…]` and `**` match as in a shell."""
    restore_keys: list[str] = []
    """Prefixes of other keys to restore, in order of preference."""

    @property
    def paths(self) -> list[str]:
        """All paths."""
        return [self.path] if isinstance(self.path, str) else self.path


class ShellCaches:
    """The caches of one attempt: restored before, and saved after the steps."""

    def __init__(self, ctx: Context, wanted: Sequence[Cache], base: Path, workspace: Path) -> None:
        self._ctx = ctx
        self._wanted = wanted
        self._workspace = workspace
        self._base = resolve_inside(workspace.resolve(), base)
        self._keys: list[str | None] = []
        """The key to save each cache under; None if it need not be saved."""

    async def restore(self) -> None:
        """Restore the caches that exist."""
        for one in self._wanted:
            self._keys.append(None)
            async with self._errors_logged(f"The cache {one.key} is not used"):
                key = await asyncio.to_thread(_key, one, self._base)
                if not await self._restored(one, key):
                    self._keys[-1] = key

    async def save(self) -> None:
        """Save the caches that were not found."""
        for one, key in zip(self._wanted, self._keys, strict=True):
            if key is not None:
                async with self._errors_logged(f"The cache {key} is not saved"):
                    await self._save(one, key)

    async def _restored(self, one: Cache, key: str) -> bool:
        """Return whether the cache of the exact key was restored."""
        with _scratch(self._workspace) as folder:
            packed = folder / "packed"
            view = await unless_cancelled(self._ctx, self._ctx.caches.fetch(key, one.restore_keys, packed))
            if view is None:
                self._ctx.log(f"Cache: there is no cache {key}.")
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
    async def _errors_logged(self, what: str) -> AsyncIterator[None]:
        try:
            yield
        except (InterlockError, OSError) as error:
            reason = error.sentence if isinstance(error, InterlockError) else str(error)
            refused = isinstance(error, ServerRefused) and error.facts.get("code") == CacheRefused.code
            level = "info" if refused or isinstance(error, CacheRefused) else "warning"
            self._ctx.log(f"{what}: {reason}", level)


async def restored(ctx: Context, wanted: Sequence[Cache], base: Path, workspace: Path) -> ShellCaches | None:
    """Return the restored caches of an attempt; None if it has none."""
    if not wanted:
        return None
    caches = ShellCaches(ctx, wanted, base, workspace)
    await caches.restore()
    return caches


def check_caches(caches: Sequence[Cache]) -> None:
    """Raise, before any step, if a cache could not be saved at the end."""
    if len(caches) > MOST:
        raise InvalidArguments(f"A job has at most {MOST} caches.", todo="Put paths together under one key.")
    for one in caches:
        for key in (one.key, *one.restore_keys):
            checked_key(key)
        plain = [path for path in one.paths if path.strip("./") and not set("*?[") & set(path)]
        if len(one.restore_keys) > MAX_PREFIXES or not one.paths or plain != one.paths:
            raise InvalidArguments(
                f"The cache {one.key} has invalid paths or keys.",
                todo=f"Give paths inside the folder, no patterns, and at most {MAX_PREFIXES} restore_keys.",
                facts={"key": one.key},
            )


def _key(one: Cache, base: Path) -> str:
    """Return the key, with a digest of the names and contents of its files."""
    if not one.files:
        return one.key
    base, digest = base.resolve(), hashlib.sha256()
    with Beneath(base) as folder:
        for path in found_in(base, one.files).paths:
            if path.is_file():
                content = hashlib.sha256()
                with folder.open(path.relative_to(base).parts) as file:
                    while piece := file.read(PIECE):
                        content.update(piece)
                named = os.fsencode(path.relative_to(base).as_posix())
                digest.update(named + f"\0{content.hexdigest()}\n".encode())
    return checked_key(f"{one.key}-{digest.hexdigest()[:DIGEST]}")


@contextlib.contextmanager
def _scratch(workspace: Path) -> Iterator[Path]:
    """Yield a folder beside the checkout.

    It is on the same disk, so that unpacked files can be moved.
    """
    with tempfile.TemporaryDirectory(prefix="cache-", dir=workspace) as folder:
        yield Path(folder)
