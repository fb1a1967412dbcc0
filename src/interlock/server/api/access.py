"""Routes of access: tokens that an admin manages, and sessions of browsers that sign in with one.

An admin that is confined to queues sees and makes tokens of these queues only, and no token may do more
than its maker. The secret is in the answer to the request that made it, and nowhere else: the same request
again is refused (`secret_shown_once`).
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from interlock.errors import RequestIdReused, TransitionNotAllowed
from interlock.server.authentication import cleared_cookie, is_encrypted, session_of, set_cookie
from interlock.server.messages import Reason, RequestId
from interlock.server.problems import TooBusy, TooMany
from interlock.server.routes import Call, Confined, Link, Route
from interlock.systems.access.authentication import LIFETIME
from interlock.systems.access.principals import NotAllowed, NotSignedIn, Principal, Role
from interlock.systems.access.tokens import (
    MAX_LIFETIME,
    MAX_OVERLAP,
    OVERLAPPING,
    USUAL,
    InvalidToken,
    Issued,
    SecretShownOnce,
    TokenView,
    UnknownToken,
    unknown_token,
)

Queue = Annotated[str, Meta(min_length=1, max_length=64)]
Lasts = Annotated[float, Meta(gt=0, le=MAX_LIFETIME.total_seconds(), description="Lifetime in seconds.")]
Overlap = Annotated[
    float,
    Meta(
        ge=0,
        le=MAX_OVERLAP.total_seconds(),
        description="How long the old secret works beside the new one, in seconds; 0 ends it at once.",
    ),
]


class NewToken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token to be made."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    role: Role
    queues: Annotated[
        tuple[Queue, ...], Meta(max_length=100, description="Confine it to these queues; none means all.")
    ] = ()
    lasts_s: Lasts | None = USUAL.total_seconds()
    """None for a token that does not expire."""
    request_id: RequestId | None = None


class RotateRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new secret for a token."""

    overlap_s: Overlap = OVERLAPPING.total_seconds()
    reason: Reason = ""
    request_id: RequestId | None = None


class RevokeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Take a token back."""

    reason: Reason = ""
    request_id: RequestId | None = None


class TokensQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tokens."""

    ended: Annotated[bool, Meta(description="Also those that were revoked or have expired.")] = False


class TokenList(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens, the oldest first."""

    tokens: tuple[TokenView, ...]


async def create_token(call: Call) -> Issued:
    """Make a token and show its secret, this once."""
    asked: NewToken = call.body
    _check_reach(call.principal, asked.role, asked.queues)
    return await call.parts.tokens.create(
        asked.name,
        asked.role,
        queues=asked.queues,
        lasts=None if asked.lasts_s is None else timedelta(seconds=asked.lasts_s),
        actor=call.actor,
        request_id=call.request_id,
    )


async def list_tokens(call: Call) -> TokenList:
    """Return the tokens that may be seen."""
    views = await call.parts.tokens.list(ended=call.query.ended)
    return TokenList(tokens=tuple(view for view in views if _sees(call.principal, view)))


async def get_token(call: Call) -> TokenView:
    """Return a token by its name or its id; one that may not be seen is not there."""
    view = await call.parts.tokens.get(call.path["token_name"])
    if not _sees(call.principal, view):
        raise unknown_token(call.path["token_name"])
    return view


async def rotate_token(call: Call) -> Issued:
    """Give a token a new secret and show that, this once."""
    asked: RotateRequest = call.body
    view = await get_token(call)
    issued = await call.parts.tokens.rotate(
        view.id,
        overlap=timedelta(seconds=asked.overlap_s),
        actor=call.actor,
        reason=asked.reason,
        request_id=call.request_id,
    )
    call.parts.check.forget(view.id)
    return issued


async def revoke_token(call: Call) -> TokenView:
    """Take a token back."""
    asked: RevokeRequest = call.body
    revoked = await call.parts.tokens.revoke(
        call.path["token_name"],
        actor=call.actor,
        reason=asked.reason,
        request_id=call.request_id,
        sees=partial(_sees, call.principal),
    )
    call.parts.check.forget(revoked.id)
    return revoked


def _sees(principal: Principal, view: TokenView) -> bool:
    """Whether a token reaches no further than whoever asks."""
    return not principal.scoped or (bool(view.queues) and principal.queues.issuperset(view.queues))


def _check_reach(principal: Principal, role: Role, queues: tuple[str, ...]) -> None:
    """Raise unless whoever asks may do, and see, at least what the token may."""
    if not (principal.may(Role.ADMIN) or principal.may(role)):
        principal.need(role)
    if principal.scoped and not queues:
        own = sorted(principal.queues)
        raise NotAllowed(
            f"{principal.name} is confined to {', '.join(own)}, and the token would be for all queues.",
            todo="Name the queues that it is for.",
            allowed=own,
            facts={"principal": principal.name, "queues": own},
        )
    principal.need_queues(queues)


_TOKEN = {"token_name": "The name of a token, or its id."}
_VIEW = {
    "id": "6f2c9d41a07be358",
    "name": "ci",
    "role": "submitter",
    "state": "active",
    "created_at": "2026-05-01T12:00:00Z",
}
_ISSUED = {"token": "il_6f2c9d41a07be358_" + "…", "view": _VIEW}

TOKEN_ROUTES = (
    Route(
        method="POST",
        path="/api/tokens",
        name="createToken",
        summary="Make a token; its secret is shown in this answer only.",
        handler=create_token,
        role=Role.ADMIN,
        confined=Confined.NAMES,
        bodies=(NewToken,),
        repeatable=True,
        answer=Issued,
        status=201,
        errors=(InvalidToken, SecretShownOnce, RequestIdReused, NotAllowed),
        example={"name": "ci", "role": "submitter", "queues": ["builds"], "lasts_s": 2_592_000},
        answer_example=_ISSUED,
        links=(Link("getToken", "token_name", "$response.body#/view/id"),),
    ),
    Route(
        method="GET",
        path="/api/tokens",
        name="listTokens",
        summary="List tokens with role, queues, expiry and last use, without their secrets.",
        handler=list_tokens,
        role=Role.ADMIN,
        confined=Confined.HIDES,
        query=TokensQuery,
        answer=TokenList,
    ),
    Route(
        method="GET",
        path="/api/tokens/{token_name}",
        name="getToken",
        summary="Show a token, without its secret.",
        handler=get_token,
        role=Role.ADMIN,
        confined=Confined.HIDES,
        parameters=_TOKEN,
        answer=TokenView,
        errors=(UnknownToken,),
    ),
    Route(
        method="POST",
        path="/api/tokens/{token_name}/rotate",
        name="rotateToken",
        summary="Give a token a new secret; the old one works for a while. It is shown in this answer only.",
        handler=rotate_token,
        role=Role.ADMIN,
        confined=Confined.HIDES,
        parameters=_TOKEN,
        bodies=(RotateRequest,),
        body_required=False,
        repeatable=True,
        answer=Issued,
        errors=(UnknownToken, InvalidToken, TransitionNotAllowed, SecretShownOnce, RequestIdReused),
        example={"overlap_s": 3_600, "reason": "every quarter"},
        answer_example=_ISSUED,
    ),
    Route(
        method="POST",
        path="/api/tokens/{token_name}/revoke",
        name="revokeToken",
        summary="Take a token back; other servers that have just seen it let it in for a few seconds more.",
        handler=revoke_token,
        role=Role.ADMIN,
        confined=Confined.HIDES,
        parameters=_TOKEN,
        bodies=(RevokeRequest,),
        body_required=False,
        repeatable=True,
        answer=TokenView,
        errors=(UnknownToken, TransitionNotAllowed, RequestIdReused),
        example={"reason": "it was in a log", "request_id": "revoke-ci"},
    ),
)


MOST_BYTES = 1_024


class SignIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The token to sign in with."""

    token: Annotated[str, Meta(min_length=1, max_length=200)]


class SignedIn(msgspec.Struct, frozen=True, kw_only=True):
    """The principal of a request, and what it may do."""

    name: str
    roles: tuple[Role, ...]
    """Every role whose requests are allowed."""
    queues: tuple[str, ...] = ()
    """The queues that exist for it; none named means all of them."""
    signed_in: bool = False
    """Whether a token or a session was shown; otherwise there is nothing to sign out of."""


class SignedOut(msgspec.Struct, frozen=True, kw_only=True):
    """The session is over."""

    signed_in: bool = False


async def sign_in(call: Call) -> Response:
    """Open a session with a token; the cookie is all that the browser keeps."""
    asked: SignIn = call.body
    principal = await call.parts.check.principal_of(asked.token, call.address)
    call.parts.sign_ins.take(principal.name)
    opened = await call.parts.sessions.open(principal)
    encrypted = is_encrypted(call.headers, tls=_tls(call))
    cookie = set_cookie(call.headers, opened.text, int(LIFETIME.seconds), encrypted=encrypted)
    body = msgspec.json.encode(_seen(principal))
    return Response(body, media_type="application/json", headers={"Set-Cookie": cookie})


async def show_session(call: Call) -> SignedIn:
    """Return the principal of the request."""
    return _seen(call.principal)


async def sign_out(call: Call) -> Response:
    """End the session of this browser."""
    await call.parts.sessions.close(session_of(call.headers, tls=_tls(call)))
    cookie = cleared_cookie(call.headers, tls=_tls(call))
    body = msgspec.json.encode(SignedOut())
    return Response(body, media_type="application/json", headers={"Set-Cookie": cookie})


def _tls(call: Call) -> bool:
    return call.parts.settings.tls_cert is not None


def _seen(principal: Principal) -> SignedIn:
    roles = tuple(role for role in Role if principal.may(role))
    return SignedIn(
        name=principal.name,
        roles=roles,
        queues=tuple(sorted(principal.queues)),
        signed_in=bool(principal.token_id),
    )


SESSION_ROUTES = (
    Route(
        method="POST",
        path="/api/sessions",
        name="signIn",
        summary="Sign in with a token; the answer sets a cookie that no script can read.",
        handler=sign_in,
        role=None,
        shows_token=True,
        bodies=(SignIn,),
        most=lambda _: MOST_BYTES,
        answer=SignedIn,
        errors=(NotSignedIn, NotAllowed, TooMany, TooBusy),
        example={"token": "il_6f2c9d41a07be358_…"},
    ),
    Route(
        method="GET",
        path="/api/session",
        name="showSession",
        summary="Show the principal of the request and its roles.",
        handler=show_session,
        role=Role.VIEWER,
        confined=Confined.NOTHING,
        answer=SignedIn,
    ),
    Route(
        method="POST",
        path="/api/session/end",
        name="signOut",
        summary="Sign out: end the session of this browser.",
        handler=sign_out,
        role=Role.VIEWER,
        confined=Confined.NOTHING,
        answer=SignedOut,
    ),
)
