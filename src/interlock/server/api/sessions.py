"""Sessions: a browser signs in with a token, and out again."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from interlock.server.cookies import cleared_cookie, is_encrypted, session_of, set_cookie
from interlock.server.problems import TooBusy, TooMany
from interlock.server.routes import Call, Confined, Route
from interlock.systems.access.principals import NotAllowed, NotSignedIn, Principal, Role
from interlock.systems.access.sessions import LIFETIME

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


ROUTES = (
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
