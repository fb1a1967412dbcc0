"""Tokens that an admin manages, and sessions of browsers that sign in with one."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from interlock.api.messages import Input, Reason, ReasonedRequest, RequestId
from interlock.api.operation import Link, Operation, Parameter, QueueConfinement
from interlock.errors import (
    InvalidToken,
    NotAllowed,
    NotSignedIn,
    RequestIdReused,
    SecretShownOnce,
    TooBusy,
    TooMany,
    TransitionNotAllowed,
    UnknownToken,
)
from interlock.wire.access import (
    MAX_LIFETIME,
    MAX_OVERLAP,
    OVERLAPPING,
    USUAL,
    Issued,
    Role,
    TokenView,
)

_VIEW = {
    "id": "6f2c9d41a07be358",
    "name": "ci",
    "role": "submitter",
    "state": "active",
    "created_at": "2026-05-01T12:00:00Z",
}

_TOKEN = {"token_name": Parameter("The name of a token, or its id.")}

_ISSUED = {"token": "il_6f2c9d41a07be358_" + "…", "view": _VIEW}

Queue = Annotated[str, Meta(min_length=1, max_length=64)]

Overlap = Annotated[
    float,
    Meta(
        ge=0,
        le=MAX_OVERLAP.total_seconds(),
        description="Time for which the old secret stays valid, in seconds; 0 revokes it at once.",
    ),
]

Lasts = Annotated[float, Meta(gt=0, le=MAX_LIFETIME.total_seconds(), description="Lifetime in seconds.")]


class NewToken(Input, frozen=True, kw_only=True):
    """A token to create."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    role: Role
    queues: Annotated[
        tuple[Queue, ...],
        Meta(max_length=100, description="Restrict the token to these queues (default: all)."),
    ] = ()
    lasts_s: Lasts | None = USUAL.total_seconds()
    """Lifetime; null for a token that does not expire."""
    request_id: RequestId | None = None


class RotateRequest(Input, frozen=True, kw_only=True):
    """A new secret for a token."""

    overlap_s: Overlap = OVERLAPPING.total_seconds()
    reason: Reason = ""
    request_id: RequestId | None = None


class RevokeRequest(ReasonedRequest, frozen=True, kw_only=True):
    """Revoke a token."""


class TokensQuery(Input, frozen=True, kw_only=True):
    """Filter of tokens."""

    ended: Annotated[bool, Meta(description="Include revoked and expired tokens.")] = False


class TokenList(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens, the oldest first."""

    tokens: tuple[TokenView, ...]


class SignIn(Input, frozen=True, kw_only=True):
    """The token to sign in with."""

    token: Annotated[str, Meta(min_length=1, max_length=200)]


class SignedIn(msgspec.Struct, frozen=True, kw_only=True):
    """The principal of a request, and its permissions."""

    name: str
    roles: tuple[Role, ...]
    """Roles of the principal, including those that its role implies."""
    queues: tuple[str, ...] = ()
    """Queues visible to the principal; empty: all queues."""
    signed_in: bool = False
    """Whether the request had a token or a session; otherwise there is nothing to sign out of."""


class SignedOut(msgspec.Struct, frozen=True, kw_only=True):
    """The session is over."""

    signed_in: bool = False


CREATE_TOKEN = Operation(
    name="createToken",
    request="POST /api/tokens",
    summary="Create a token; its secret is shown in this response only.",
    role=Role.ADMIN,
    confined=QueueConfinement.NAMES,
    input=NewToken,
    output=Issued,
    status=201,
    errors=(InvalidToken, SecretShownOnce, RequestIdReused, NotAllowed),
    example={"name": "ci", "role": "submitter", "queues": ["builds"], "lasts_s": 2_592_000},
    answer_example=_ISSUED,
    links=(Link("getToken", "token_name", "$response.body#/view/id"),),
)

LIST_TOKENS = Operation(
    name="listTokens",
    request="GET /api/tokens",
    summary="List tokens with role, queues, expiry and last use, without their secrets.",
    role=Role.ADMIN,
    confined=QueueConfinement.HIDES,
    input=TokensQuery,
    output=TokenList,
)

GET_TOKEN = Operation(
    name="getToken",
    request="GET /api/tokens/{token_name}",
    summary="Show a token, without its secret.",
    role=Role.ADMIN,
    confined=QueueConfinement.HIDES,
    parameters=_TOKEN,
    output=TokenView,
    errors=(UnknownToken,),
)

ROTATE_TOKEN = Operation(
    name="rotateToken",
    request="POST /api/tokens/{token_name}/rotate",
    summary="Rotate the secret of a token: shown in this response only; the old one works for a while.",
    role=Role.ADMIN,
    confined=QueueConfinement.HIDES,
    parameters=_TOKEN,
    input=RotateRequest,
    output=Issued,
    errors=(UnknownToken, InvalidToken, TransitionNotAllowed, SecretShownOnce, RequestIdReused),
    example={"overlap_s": 3_600, "reason": "every quarter"},
    answer_example=_ISSUED,
)

REVOKE_TOKEN = Operation(
    name="revokeToken",
    request="POST /api/tokens/{token_name}/revoke",
    summary="Revoke a token; other servers may accept it for a few more seconds.",
    role=Role.ADMIN,
    confined=QueueConfinement.HIDES,
    parameters=_TOKEN,
    input=RevokeRequest,
    output=TokenView,
    errors=(UnknownToken, TransitionNotAllowed, RequestIdReused),
    example={"reason": "it was in a log", "request_id": "revoke-ci"},
)

SIGN_IN = Operation(
    name="signIn",
    request="POST /api/sessions",
    summary="Sign in with a token; the response sets an HttpOnly cookie.",
    role=None,
    input=SignIn,
    output=SignedIn,
    errors=(NotSignedIn, NotAllowed, TooMany, TooBusy),
    shows_token=True,
    example={"token": "il_6f2c9d41a07be358_…"},
)

SHOW_SESSION = Operation(
    name="showSession",
    request="GET /api/session",
    summary="Show the principal of the request and its roles.",
    role=Role.VIEWER,
    confined=QueueConfinement.NOTHING,
    output=SignedIn,
)

SIGN_OUT = Operation(
    name="signOut",
    request="POST /api/session/end",
    summary="Sign out: end the session of this browser.",
    role=Role.VIEWER,
    confined=QueueConfinement.NOTHING,
    output=SignedOut,
)
