"""A folder with blobs: whole or not there, under names of its own, within bounds, and not for ever."""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from interlock.errors import ArtifactGone, BlobsFull, StoreUnavailable, TooLarge
from interlock.systems.blobs import (
    INCOMING,
    LEFT_AFTER_S,
    BlobSettings,
    DirectoryBlobs,
    blobs_for,
    caches_for,
)


class Time:
    """A clock that somebody sets."""

    def __init__(self) -> None:
        self.now = 1_000_000_000.0

    def __call__(self) -> float:
        return self.now


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def content(blobs: DirectoryBlobs, sha256: str) -> bytes:
    return b"".join([piece async for piece in blobs.read(sha256)])


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


async def test_a_blob_is_read_back_by_its_sha256_digest_and_stored_once(tmp_path: Path) -> None:
    blobs = DirectoryBlobs(tmp_path / "blobs", BlobSettings())
    large = os.urandom(3_000_000)
    blob = await blobs.put(pieces(large[:10], b"", large[10:]))
    assert (blob.sha256, blob.size) == (hashlib.sha256(large).hexdigest(), 3_000_000)
    assert await blobs.has(blob.sha256)
    assert await content(blobs, blob.sha256) == large
    empty = await blobs.put(pieces())
    assert await content(blobs, empty.sha256) == b""
    again = await blobs.put(pieces(large))
    assert again == blob
    assert len(files(blobs.folder)) == 3  # two blobs and the lock


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "", "ab", "A" * 64, "ab/../" + "a" * 60])
async def test_reading_a_blob_by_a_name_that_is_not_a_digest_is_refused(tmp_path: Path, name: str) -> None:
    blobs = DirectoryBlobs(tmp_path, BlobSettings())
    with pytest.raises(ArtifactGone):
        await content(blobs, name)


async def test_an_upload_that_fails_midway_leaves_no_file_behind(tmp_path: Path) -> None:
    blobs = DirectoryBlobs(tmp_path, BlobSettings())

    async def breaking() -> AsyncIterator[bytes]:
        yield b"x" * 2_000_000
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        await blobs.put(breaking())
    assert files(tmp_path) == []


async def test_a_cancelled_put_leaves_no_file_behind(tmp_path: Path) -> None:
    blobs = DirectoryBlobs(tmp_path, BlobSettings())
    begun, never = asyncio.Event(), asyncio.Event()

    async def waiting() -> AsyncIterator[bytes]:
        yield b"x" * 2_000_000
        begun.set()
        await never.wait()

    putting = asyncio.ensure_future(blobs.put(waiting()))
    await begun.wait()
    assert [name.startswith(INCOMING) for name in files(tmp_path)] == [True]
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert files(tmp_path) == []


async def test_an_upload_over_the_blob_size_limit_is_refused_before_it_is_read_completely(
    tmp_path: Path,
) -> None:
    blobs = DirectoryBlobs(tmp_path, BlobSettings(max_blob_bytes=2_000_000))
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        while True:
            read += 500_000
            yield bytes(500_000)

    with pytest.raises(TooLarge, match="2,000,000"):
        await blobs.put(endless())
    assert read <= 4_000_000
    assert files(tmp_path) == []


async def test_all_together_have_a_limit_too_and_old_ones_make_room(tmp_path: Path) -> None:
    time = Time()
    blobs = DirectoryBlobs(tmp_path, BlobSettings(max_bytes=250), clock=time)
    first = await blobs.put(pieces(b"a" * 100))
    await blobs.put(pieces(b"b" * 100))
    with pytest.raises(BlobsFull) as full:
        await blobs.put(pieces(b"c" * 100))
    assert full.value.facts == {"bytes": 100, "used": 200, "limit": 250}
    assert await blobs.put(pieces(b"a" * 100)) == first  # it is there already, and takes no room
    neighbour = DirectoryBlobs(tmp_path, BlobSettings(max_bytes=250), clock=time)
    with pytest.raises(BlobsFull):
        await neighbour.put(pieces(b"c" * 100))
    time.now += 86_400.0 * 3
    assert await blobs.prune(timedelta(days=2)) == 2
    assert (await blobs.put(pieces(b"c" * 100))).size == 100


async def test_an_upload_is_refused_if_the_concurrent_uploads_together_exceed_their_size_limit(
    tmp_path: Path,
) -> None:
    blobs = DirectoryBlobs(tmp_path, BlobSettings(max_bytes=2_000_000, max_blob_bytes=1_500_000))
    begun, go_on = [asyncio.Event() for _ in range(3)], asyncio.Event()

    async def waiting(event: asyncio.Event) -> AsyncIterator[bytes]:
        yield bytes(1_100_000)
        event.set()
        await go_on.wait()

    putting = [asyncio.ensure_future(blobs.put(waiting(event))) for event in begun]
    for event in begun:
        await event.wait()
    with pytest.raises(BlobsFull, match="Concurrent uploads"):
        await blobs.put(pieces(bytes(1_100_000)))
    go_on.set()
    first, *others = await asyncio.gather(*putting)
    assert others == [first, first]
    assert (await blobs.put(pieces(bytes(1_100_000)))) == first


async def test_storing_a_blob_again_restarts_its_retention_period(tmp_path: Path) -> None:
    time = Time()
    blobs = DirectoryBlobs(tmp_path, BlobSettings(), clock=time)
    kept, old = await blobs.put(pieces(b"kept")), await blobs.put(pieces(b"old"))
    time.now += 1_000.0
    await blobs.put(pieces(b"kept"))
    time.now += 1_000.0
    assert await blobs.prune(timedelta(seconds=1_500)) == 1
    assert await blobs.has(kept.sha256)
    assert not await blobs.has(old.sha256)


async def test_prune_removes_a_partial_upload_that_a_crash_left_behind_after_one_day(tmp_path: Path) -> None:
    time = Time()
    blobs = DirectoryBlobs(tmp_path, BlobSettings(), clock=time)
    await blobs.put(pieces(b"whole"))
    left = tmp_path / INCOMING / "half"
    left.write_bytes(b"ha")
    os.utime(left, (time.now, time.now))
    assert await blobs.prune(timedelta(days=365)) == 0
    time.now += LEFT_AFTER_S + 1
    assert await blobs.prune(timedelta(days=365)) == 1
    assert not left.exists()


async def test_a_folder_that_cannot_be_written_to_is_a_store_that_is_away(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    blobs = DirectoryBlobs(tmp_path / "file" / "blobs", BlobSettings())
    with pytest.raises(StoreUnavailable, match="cannot be written to"):
        await blobs.put(pieces(b"x"))


def test_blobs_are_beside_a_database_file_unless_a_folder_is_named(tmp_path: Path) -> None:
    beside = blobs_for(f"sqlite:///{tmp_path}/interlock.db", BlobSettings())
    assert repr(beside) == f"<blobs in {tmp_path}/interlock.db.blobs>"
    named = blobs_for("postgresql://host/name", BlobSettings(directory="/srv/blobs"))
    assert repr(named) == "<blobs in /srv/blobs>"
    assert blobs_for("redis://host", BlobSettings()) is None


@pytest.mark.parametrize("umask", [0o022, 0o000], ids=oct)
async def test_blobs_can_be_read_by_their_owner_alone(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        url = f"sqlite:///{tmp_path}/new/jobs.db"
        for blobs in (blobs_for(url, BlobSettings()), caches_for(url, BlobSettings())):
            assert blobs is not None
            await blobs.put(pieces(b"x"))
    finally:
        os.umask(before)
    made = list((tmp_path / "new").rglob("*"))
    assert {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_dir()} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_file()} == {0o600}
