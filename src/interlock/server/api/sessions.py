"""Sessions: a browser signs in with a token, and out again."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from interlock.server.cookies import session_of, set_cookie
from interlock.server.declaring import Call, Confined, Route
from interlock.systems.access.principals import NotSignedIn, Principal, Role

MOST_BYTES = 1_024


class SignIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The token to sign in with."""

    token: Annotated[str, Meta(min_length=1, max_length=200)]


class SignedIn(msgspec.Struct, frozen=True, kw_only=True):
    """Whoever asks, and what they may do."""

    name: str
    roles: tuple[Role, ...]
    """Every role whose requests are allowed."""
    queues: tuple[str, ...] = ()
    """The queues that are seen; none named means all of them."""
    signed_in: bool = False
    """Whether a token was needed; without one there is nothing to sign out of."""


class SignedOut(msgspec.Struct, frozen=True, kw_only=True):
    """The session is over."""

    signed_in: bool = False


async def sign_in(call: Call) -> Response:
    """Open a session for whoever has the token; the cookie is all that the browser keeps."""
    asked: SignIn = call.body
    opened = await call.parts.sessions.open(asked.token)
    lasts_s = int((opened.expires_at - await call.parts.household.engine.clock.now()).total_seconds())
    cookie = set_cookie(opened.secret, lasts_s, tls=call.parts.settings.tls_cert is not None)
    body = msgspec.json.encode(_seen(opened.principal))
    return Response(body, media_type="application/json", headers={"Set-Cookie": cookie})


async def show_session(call: Call) -> SignedIn:
    """Say who is asking."""
    return _seen(call.principal)


async def sign_out(call: Call) -> Response:
    """End the session of this browser."""
    await call.parts.sessions.close(session_of(call.headers))
    cookie = set_cookie("", 0, tls=call.parts.settings.tls_cert is not None)
    body = msgspec.json.encode(SignedOut())
    return Response(body, media_type="application/json", headers={"Set-Cookie": cookie})


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
        signed=True,
        bodies=(SignIn,),
        most=lambda _: MOST_BYTES,
        answer=SignedIn,
        errors=(NotSignedIn,),
        example={"token": "il_6f2c9d41a07be358_…"},
    ),
    Route(
        method="GET",
        path="/api/session",
        name="showSession",
        summary="Say who is asking, and what they may do.",
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
