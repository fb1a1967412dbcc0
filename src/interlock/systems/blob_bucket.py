"""Blobs in a bucket of S3, or of a service with the same API.

Why: decision 0200.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import tempfile
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from interlock.errors import InvalidSettings, StoreUnavailable
from interlock.systems.blobs import (
    COUNTED_FOR_S,
    PIECE,
    Blob,
    BlobSettings,
    check_room,
    check_size,
    gone,
    larger,
)

REQUEST_S = 60
RETRY_S = 20
RETRIES = 3
_DIGEST = re.compile(r"[0-9a-f]{64}")


class BucketBlobs:
    """A bucket with blobs, below a prefix."""

    def __init__(
        self,
        url: str,
        settings: BlobSettings,
        *,
        apart: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.url: str = f"{url.rstrip('/')}/{apart}".rstrip("/")
        self._settings = settings
        self._clock = clock
        self._store = _connected(self.url, settings)
        self._counted: tuple[float, int] | None = None

    def __repr__(self) -> str:
        return f"<blobs in {self.url}>"

    async def put(self, pieces: AsyncIterable[bytes]) -> Blob:
        """Store the content; it is in the bucket when this returns."""
        digest, size = hashlib.sha256(), 0
        with tempfile.TemporaryFile(prefix="interlock-blob-") as file:
            async for piece in larger(pieces):
                size += len(piece)
                check_size(size, self._settings)
                digest.update(piece)
                await asyncio.to_thread(file.write, piece)
            blob = Blob(digest.hexdigest(), size)
            await self._check_room(0 if await self.has(blob.sha256) else size)
            await asyncio.to_thread(_rewind, file)
            with _bucket_errors_translated():
                await obstore.put_async(self._store, blob.sha256, file)
        return blob

    async def has(self, sha256: str) -> bool:
        """Return whether the blob exists."""
        return await self._head(sha256) is not None

    async def read(self, sha256: str) -> AsyncIterator[bytes]:
        """Yield the content of a blob."""
        if not _DIGEST.fullmatch(sha256):
            raise gone(sha256[:64])
        with _bucket_errors_translated(sha256):
            found = await obstore.get_async(self._store, sha256)
            async for piece in found.stream(min_chunk_size=PIECE):
                yield bytes(piece)

    async def remove(self, sha256: str) -> None:
        """Remove a blob now."""
        if _DIGEST.fullmatch(sha256):
            with contextlib.suppress(FileNotFoundError), _bucket_errors_translated():
                await obstore.delete_async(self._store, sha256)
            self._counted = None

    async def prune(self, older_than: timedelta) -> int:
        """Remove blobs that were not put for this long."""
        limit = datetime.fromtimestamp(self._clock(), UTC) - older_than
        removed = 0
        async for found in self._all():
            if found["last_modified"] >= limit:
                continue
            now = await self._head(found["path"])  # it may have been put again since it was listed
            if now is not None and now["last_modified"] < limit:
                await self.remove(found["path"])
                removed += 1
        return removed

    async def _head(self, sha256: str) -> Any:
        if not _DIGEST.fullmatch(sha256):
            return None
        try:
            with _bucket_errors_translated():
                return await obstore.head_async(self._store, sha256)
        except FileNotFoundError:
            return None

    async def _all(self) -> AsyncIterator[Any]:
        with _bucket_errors_translated():
            async for page in obstore.list(self._store, chunk_size=1_000):
                for found in page:
                    if _DIGEST.fullmatch(found["path"]):
                        yield found

    async def _check_room(self, more: int) -> None:
        at, total = self._counted or (float("-inf"), 0)
        if self._clock() >= at + COUNTED_FOR_S:
            at, total = self._clock(), 0
            async for found in self._all():
                total += found["size"]
        self._counted = (at, total)
        check_room(more, total, self._settings)
        self._counted = (at, total + more)


def check_url(url: str) -> None:
    """Raise for an invalid address of a bucket."""
    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.netloc or parts.query or parts.username:
        raise InvalidSettings(
            f"blobs.url is {url!r}, which is not a bucket.",
            todo="Give one such as s3://BUCKET/PREFIX; the keys are in AWS_ACCESS_KEY_ID and its companion.",
            facts={"url": url},
        )


def _connected(url: str, settings: BlobSettings) -> S3Store:
    check_url(url)
    parts = urlsplit(url)
    more: dict[str, Any] = {}
    if settings.endpoint is not None:
        more["endpoint"] = settings.endpoint
    return S3Store(
        parts.netloc,
        prefix=parts.path.strip("/") or None,
        region=settings.region,
        client_options={
            "timeout": timedelta(seconds=REQUEST_S),
            "allow_http": (settings.endpoint or "").startswith("http:"),
        },
        retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_S)},
        **more,
    )


@contextlib.contextmanager
def _bucket_errors_translated(sha256: str = "") -> Iterator[None]:
    """Translate errors of a bucket into an unavailable store.

    It may be retried.
    """
    try:
        yield
    except FileNotFoundError:
        if not sha256:
            raise
        raise gone(sha256) from None
    except BaseError as error:
        raise StoreUnavailable(
            f"The bucket of the blobs did not respond as expected: {type(error).__name__}.",
            todo="Check the bucket and its permissions; nothing was stored.",
        ) from error


def _rewind(file: BinaryIO) -> None:
    file.flush()
    file.seek(0)
