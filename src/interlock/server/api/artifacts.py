"""Routes of files: artifacts that attempts leave behind, and caches that jobs keep for later ones.

A runner uploads under the lease of its attempt; every principal with access to the job may download its
artifacts. A job can produce any content, so it is never served as a page of this server: it is untyped bytes,
to be saved, and no browser may guess their type.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from interlock.api import artifacts as api
from interlock.api.operation import BYTES
from interlock.errors import ArrivedTooSlowly, UnknownCache
from interlock.server.api.runner import known_as
from interlock.server.api.visibility import job_of
from interlock.server.authentication import lease_of
from interlock.server.event_streams import PATIENCE_S
from interlock.server.parts import Parts
from interlock.server.requests import ClientGone
from interlock.server.routes import Call, handles
from interlock.wire.artifacts import (
    CACHE,
    LEASE,
    MAX_PREFIXES,
    RUNNER,
    ArtifactList,
    ArtifactView,
    CacheView,
)

UPLOAD_S = 3_600.0
"""Maximum time for the upload of one file."""


def _most(parts: Parts) -> int:
    return parts.runtime.orchestrator.settings.blobs.max_blob_bytes


@handles(api.UPLOAD_ARTIFACT, most=_most)
async def upload(call: Call) -> ArtifactView:
    """Store a file of the attempt that holds the lease."""
    lease, runner_id = (call.headers.get(name.lower(), "") for name in (LEASE, RUNNER))
    lease = lease_of(call.principal, lease)
    artifacts = call.parts.runtime.artifacts
    known = known_as(call.principal, runner_id)
    try:
        async with asyncio.timeout(UPLOAD_S) as limit, aclosing(call.body) as pieces:
            return await artifacts.keep(lease, known, call.path["artifact"], pieces)
    except TimeoutError:
        if not limit.expired():
            raise
        raise arrived_too_slowly() from None


def arrived_too_slowly() -> ArrivedTooSlowly:
    """Return the error of an upload that missed its deadline."""
    return ArrivedTooSlowly(
        f"The file did not arrive within {UPLOAD_S:g} s.",
        todo="Upload smaller files; nothing was stored.",
        facts={"limit_s": UPLOAD_S},
    )


@handles(api.LIST_ARTIFACTS)
async def list_artifacts(call: Call) -> ArtifactList:
    """Return the artifacts of a job."""
    job = await job_of(call)
    return ArtifactList(await call.parts.runtime.artifacts.list(job.id))


@handles(api.GET_ARTIFACT)
async def download(call: Call) -> Response:
    """Return the content of an artifact."""
    job = await job_of(call)
    artifacts = call.parts.runtime.artifacts
    view = await artifacts.find(job.id, call.path["artifact"], call.query.attempt)
    return Download(view.name, view.size, view.sha256, artifacts.read(view))


class Download(Response):
    """A file as a response, sent in chunks, to be saved."""

    media_type = BYTES

    def __init__(self, name: str, size: int, sha256: str, pieces: AsyncIterator[bytes]) -> None:
        # A name is made of letters, digits, dots, dashes and underscores, so it needs no quoting.
        super().__init__(
            headers={
                "Content-Disposition": f'attachment; filename="{name}"',
                "Content-Security-Policy": "sandbox; default-src 'none'",
                "X-Content-Type-Options": "nosniff",
                "Content-Length": str(size),
                "ETag": f'"{sha256}"',
            }
        )
        self._pieces = pieces

    async def __call__(self, scope: Scope, _: Receive, send: Send) -> None:
        """Send the file; disconnect a client that reads nothing for too long."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        if scope["method"] != "HEAD":
            async for piece in self._pieces:
                try:
                    async with asyncio.timeout(PATIENCE_S):
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
                except TimeoutError:
                    raise ClientGone from None
        await send({"type": "http.response.body", "body": b""})


def _most_cache_bytes(parts: Parts) -> int:
    settings = parts.runtime.orchestrator.settings.blobs
    return min(settings.max_blob_bytes, settings.max_cache_bytes)


@handles(api.SAVE_CACHE, most=_most_cache_bytes)
async def save_cache(call: Call) -> CacheView:
    """Store a cache entry for later jobs."""
    try:
        async with asyncio.timeout(UPLOAD_S) as limit, aclosing(call.body) as pieces:
            return await call.parts.runtime.caches.keep(*_cache_owner(call), call.query.key, pieces)
    except TimeoutError:
        if not limit.expired():
            raise
        raise arrived_too_slowly() from None


@handles(api.FETCH_CACHE)
async def fetch_cache(call: Call) -> Response:
    """Return the cache entry of an earlier job."""
    key, prefixes = call.query.key, tuple(filter(None, call.query.prefixes.split(",")))[:MAX_PREFIXES]
    found = await call.parts.runtime.caches.open(*_cache_owner(call), key, prefixes)
    if found is None:
        raise UnknownCache(
            f"There is no cache {key!r}.",
            todo="Do the work, and save a cache for the next time.",
            facts={"key": key},
        )
    view, pieces = found
    answer = Download("cache", view.size, view.sha256, pieces)
    answer.headers[CACHE] = msgspec.json.encode(view).decode()
    return answer


def _cache_owner(call: Call) -> tuple[str, str]:
    lease, runner_id = (call.headers.get(name.lower(), "") for name in (LEASE, RUNNER))
    return lease_of(call.principal, lease), known_as(call.principal, runner_id)
