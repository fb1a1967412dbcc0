"""Files that jobs keep for later ones: runners save them and fetch them, under the lease of an attempt."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Annotated

import msgspec
from starlette.responses import Response

from interlock.errors import (
    BlobsFull,
    InvalidArguments,
    LeaseExpired,
    LeaseRevoked,
    MessageRefused,
    NoBlobs,
    TooLarge,
    UnknownLease,
    WrongRunner,
)
from interlock.server.api.artifacts import UPLOAD_S, Download, arrived_too_slowly
from interlock.server.api.runner import known_as
from interlock.server.claims import lease_of
from interlock.server.parts import Parts
from interlock.server.problems import ArrivedTooSlowly, BadRequest
from interlock.server.routes import BYTES, Call, Confined, Lane, Route
from interlock.systems.access.principals import Role
from interlock.wire.artifacts import LEASE, RUNNER
from interlock.wire.caches import CACHE, MAX_KEY, MAX_PREFIXES, CacheRefused, CacheView, UnknownCache


class KeyQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Under which key."""

    key: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_KEY)]


class CacheQuery(KeyQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which cache is wanted."""

    prefixes: Annotated[str, msgspec.Meta(max_length=MAX_PREFIXES * (MAX_KEY + 1))] = ""
    """What the key of another one may begin with, separated by commas; the first goes before the others."""


async def save(call: Call) -> CacheView:
    """Something for later jobs."""
    try:
        async with asyncio.timeout(UPLOAD_S) as limit, aclosing(call.body) as pieces:
            return await call.parts.runtime.caches.keep(*_who(call), call.query.key, pieces)
    except TimeoutError:
        if not limit.expired():
            raise
        raise arrived_too_slowly() from None


async def fetch(call: Call) -> Response:
    """What an earlier job has saved."""
    key, prefixes = call.query.key, tuple(filter(None, call.query.prefixes.split(",")))[:MAX_PREFIXES]
    found = await call.parts.runtime.caches.open(*_who(call), key, prefixes)
    if found is None:
        raise UnknownCache(
            f"Nothing is saved under {key!r}.",
            todo="Do the work, and save what shall be there next time.",
            facts={"key": key},
        )
    view, pieces = found
    answer = Download("cache", view.size, view.sha256, pieces)
    answer.headers[CACHE] = msgspec.json.encode(view).decode()
    return answer


def _who(call: Call) -> tuple[str, str]:
    lease, runner_id = (call.headers.get(name.lower(), "") for name in (LEASE, RUNNER))
    return lease_of(call.principal, lease), known_as(call.principal, runner_id)


def _most(parts: Parts) -> int:
    settings = parts.runtime.orchestrator.settings.blobs
    return min(settings.max_blob_bytes, settings.max_cache_bytes)


_HEADERS = {LEASE: "The token of the lease.", RUNNER: "The runner that holds it."}
_LEASE_ERRORS = (BadRequest, InvalidArguments, UnknownLease, LeaseExpired, LeaseRevoked, WrongRunner)

ROUTES = (
    Route(
        method="PUT",
        path="/api/runner/caches",
        name="saveCache",
        summary="Save something for later jobs of the same repository, under the lease of an attempt.",
        handler=save,
        role=Role.RUNNER,
        by_claim=True,
        confined=Confined.LEASED,
        lane=Lane.RUNNER,
        bounded=False,
        streamed=True,
        most=_most,
        query=KeyQuery,
        headers=_HEADERS,
        answer=CacheView,
        errors=(*_LEASE_ERRORS, MessageRefused, CacheRefused, NoBlobs, BlobsFull, TooLarge, ArrivedTooSlowly),
    ),
    Route(
        method="GET",
        path="/api/runner/caches",
        name="fetchCache",
        summary="Fetch what an earlier job has saved, under the lease of an attempt.",
        handler=fetch,
        role=Role.RUNNER,
        by_claim=True,
        confined=Confined.LEASED,
        lane=Lane.RUNNER,
        bounded=False,
        query=CacheQuery,
        headers=_HEADERS,
        media=BYTES,
        errors=(*_LEASE_ERRORS, MessageRefused, UnknownCache),
    ),
)
