"""Files: artifacts that attempts leave behind, and caches that jobs keep for later ones."""

from __future__ import annotations

from typing import Annotated

import msgspec

from interlock.api.jobs import JOB
from interlock.api.messages import Input
from interlock.api.operation import BYTES, Operation, Parameter, QueueConfinement
from interlock.errors import (
    ArrivedTooSlowly,
    ArtifactExists,
    ArtifactGone,
    BadRequest,
    BlobsFull,
    CacheRefused,
    InvalidArguments,
    InvalidArtifact,
    LeaseExpired,
    LeaseRevoked,
    MessageRefused,
    NoBlobs,
    TooLarge,
    UnknownArtifact,
    UnknownCache,
    UnknownJob,
    UnknownLease,
    WrongRunner,
)
from interlock.wire.access import Role
from interlock.wire.artifacts import (
    LEASE,
    MAX_KEY,
    MAX_PREFIXES,
    RUNNER,
    ArtifactList,
    ArtifactView,
    CacheView,
)

_NAME = Parameter("The name of the file: letters, digits, dots, dashes and underscores.")

_LEASE_ERRORS = (BadRequest, InvalidArguments, UnknownLease, LeaseExpired, LeaseRevoked, WrongRunner)

_HEADERS = {LEASE: "The token of the lease.", RUNNER: "The runner that holds the lease."}


class ArtifactQuery(Input, frozen=True, kw_only=True):
    """Attempt of the artifact."""

    attempt: Annotated[
        str,
        msgspec.Meta(
            max_length=16,
            description="Shard and number, as in 1.2 (default: the last attempt that has this artifact).",
        ),
    ] = ""


class KeyQuery(Input, frozen=True, kw_only=True):
    """Key of a cache."""

    key: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_KEY, description="The key of the cache.")]


class CacheQuery(KeyQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Key and prefixes of the cache to restore."""

    prefixes: Annotated[
        str,
        msgspec.Meta(
            max_length=MAX_PREFIXES * (MAX_KEY + 1),
            description="Prefixes of keys of other caches, separated by commas; earlier ones are preferred.",
        ),
    ] = ""


UPLOAD_ARTIFACT = Operation(
    name="uploadArtifact",
    request="PUT /api/runner/artifacts/{artifact}",
    summary="Upload an artifact, under the lease of an attempt.",
    role=Role.RUNNER,
    confined=QueueConfinement.LEASED,
    parameters={"artifact": _NAME},
    output=ArtifactView,
    errors=(
        BadRequest,
        UnknownLease,
        LeaseExpired,
        LeaseRevoked,
        WrongRunner,
        MessageRefused,
        InvalidArtifact,
        ArtifactExists,
        NoBlobs,
        BlobsFull,
        TooLarge,
        ArrivedTooSlowly,
    ),
    by_claim=True,
    bounded=False,
    streamed=True,
    headers={LEASE: "The token of the lease.", RUNNER: "The runner that holds the lease."},
)

LIST_ARTIFACTS = Operation(
    name="listArtifacts",
    request="GET /api/jobs/{job_id}/artifacts",
    summary="List the artifacts of a job.",
    role=Role.VIEWER,
    confined=QueueConfinement.HIDES,
    parameters=JOB,
    output=ArtifactList,
    errors=(UnknownJob,),
)

GET_ARTIFACT = Operation(
    name="getArtifact",
    request="GET /api/jobs/{job_id}/artifacts/{artifact}",
    summary="Download an artifact of a job.",
    role=Role.VIEWER,
    confined=QueueConfinement.HIDES,
    parameters={**JOB, "artifact": _NAME},
    input=ArtifactQuery,
    media=BYTES,
    errors=(UnknownJob, UnknownArtifact, ArtifactGone),
    bounded=False,
)

SAVE_CACHE = Operation(
    name="saveCache",
    request="PUT /api/runner/caches",
    summary="Save a cache for later jobs of the same repository, under the lease of an attempt.",
    role=Role.RUNNER,
    confined=QueueConfinement.LEASED,
    input=KeyQuery,
    output=CacheView,
    errors=(*_LEASE_ERRORS, MessageRefused, CacheRefused, NoBlobs, BlobsFull, TooLarge, ArrivedTooSlowly),
    by_claim=True,
    bounded=False,
    streamed=True,
    headers=_HEADERS,
)

FETCH_CACHE = Operation(
    name="fetchCache",
    request="GET /api/runner/caches",
    summary="Download a cache that an earlier job has saved, under the lease of an attempt.",
    role=Role.RUNNER,
    confined=QueueConfinement.LEASED,
    input=CacheQuery,
    media=BYTES,
    errors=(*_LEASE_ERRORS, MessageRefused, UnknownCache),
    by_claim=True,
    bounded=False,
    headers=_HEADERS,
)
