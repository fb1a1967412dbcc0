"""What holds for blobs wherever they are: the same tests over a folder and over a bucket."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock.errors import ArtifactGone, BlobsFull, InvalidSettings, StoreUnavailable, TooLarge
from interlock.systems.blob_bucket import BucketBlobs
from interlock.systems.blobs import Blobs, BlobSettings, DirectoryBlobs, blobs_for, caches_for

Make = Callable[..., Blobs]


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def content(blobs: Blobs, sha256: str) -> bytes:
    return b"".join([piece async for piece in blobs.read(sha256)])


@pytest.fixture(params=["folder", "bucket"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    if request.param == "folder":
        return lambda clock=time.time, **more: DirectoryBlobs(
            tmp_path / "blobs", BlobSettings(**more), clock=clock
        )
    settings: BlobSettings = request.getfixturevalue("bucket")

    def in_bucket(clock: Callable[[], float] = time.time, **more: Any) -> Blobs:
        assert settings.url is not None
        wanted = msgspec.structs.replace(settings, **more)
        return BucketBlobs(settings.url, wanted, clock=clock)

    return in_bucket


async def test_a_stored_blob_is_read_back_by_its_sha256_digest(make: Make) -> None:
    blobs, large = make(), os.urandom(12_000_000)
    blob = await blobs.put(pieces(large[:10], b"", large[10:]))
    assert (blob.sha256, blob.size) == (hashlib.sha256(large).hexdigest(), 12_000_000)
    assert await blobs.has(blob.sha256)
    assert await content(blobs, blob.sha256) == large
    assert await blobs.put(pieces(large)) == blob
    empty = await blobs.put(pieces())
    assert await content(blobs, empty.sha256) == b""


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "", "A" * 64, "a" * 64])
async def test_reading_a_missing_blob_or_a_name_that_is_not_a_digest_raises_artifact_gone(
    make: Make, name: str
) -> None:
    blobs = make()
    await blobs.put(pieces(b"something"))
    assert not await blobs.has(name) if name == "a" * 64 else True
    with pytest.raises(ArtifactGone):
        await content(blobs, name)


async def test_an_upload_that_fails_midway_stores_no_blob(make: Make) -> None:
    blobs = make()

    async def breaking() -> AsyncIterator[bytes]:
        yield b"x" * 2_000_000
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await blobs.put(breaking())
    assert not await blobs.has(hashlib.sha256(b"x" * 2_000_000).hexdigest())


async def test_one_has_a_limit_and_all_together_have_one(make: Make) -> None:
    blobs = make(max_blob_bytes=100, max_bytes=150)
    with pytest.raises(TooLarge, match="100 bytes"):
        await blobs.put(pieces(b"x" * 101))
    first = await blobs.put(pieces(b"a" * 100))
    with pytest.raises(BlobsFull) as full:
        await blobs.put(pieces(b"b" * 100))
    assert full.value.facts == {"bytes": 100, "used": 100, "limit": 150}
    assert await blobs.put(pieces(b"a" * 100)) == first, "it is there already, and takes no room"
    await blobs.remove(first.sha256)
    assert not await blobs.has(first.sha256)
    await blobs.remove(first.sha256)
    assert (await blobs.put(pieces(b"b" * 100))).size == 100


async def test_a_blob_that_was_last_put_before_the_retention_period_is_pruned(make: Make) -> None:
    later = [0.0]
    blobs = make(lambda: time.time() + later[0])
    blob = await blobs.put(pieces(b"old"))
    assert await blobs.prune(timedelta(days=2)) == 0
    later[0] = 3 * 86_400.0
    assert await blobs.prune(timedelta(days=2)) == 1
    assert not await blobs.has(blob.sha256)


async def test_a_bucket_that_is_not_there_or_not_ours_is_a_store_that_is_away(bucket: BlobSettings) -> None:
    nowhere = BucketBlobs("s3://no-such-bucket", bucket)
    with pytest.raises(StoreUnavailable, match="did not respond as expected"):
        await nowhere.put(pieces(b"x"))


async def test_caches_lie_apart_from_artifacts_in_a_bucket_too(bucket: BlobSettings) -> None:
    blobs, caches = blobs_for("redis://host", bucket), caches_for("redis://host", bucket)
    assert blobs is not None
    assert caches is not None
    assert repr(caches) == f"{repr(blobs)[:-1]}/caches>"
    blob = await caches.put(pieces(b"x"))
    assert not await blobs.has(blob.sha256)
    assert await blobs.prune(timedelta(days=-1)) == 0
    assert await caches.has(blob.sha256)


@pytest.mark.parametrize("url", ["http://x/y", "s3://", "bucket", "s3://me:key@bucket"])
def test_an_invalid_bucket_url_in_the_blob_settings_is_refused(url: str) -> None:
    with pytest.raises(InvalidSettings, match="not a bucket"):
        blobs_for("memory:", BlobSettings(url=url))
