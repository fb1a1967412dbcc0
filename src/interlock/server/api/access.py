"""Routes of access: tokens that an admin manages, and sessions of browsers that sign in with one.

An admin that is confined to queues sees and makes tokens of these queues only, and no token may do more
than its maker. The secret is in the answer to the request that made it, and nowhere else: the same request
again is refused (`secret_shown_once`).
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import msgspec
from starlette.responses import Response

from interlock.api import access as api
from interlock.errors import NotAllowed
from interlock.server.authentication import cleared_cookie, is_encrypted, session_of, set_cookie
from interlock.server.routes import Call, handles
from interlock.systems.access.authentication import LIFETIME
from interlock.systems.access.principals import Principal
from interlock.systems.access.tokens import unknown_token
from interlock.wire.access import (
    Issued,
    Role,
    TokenView,
)


@handles(api.CREATE_TOKEN)
async def create_token(call: Call) -> Issued:
    """Create a token and return its secret, which is shown only once."""
    body: api.NewToken = call.body
    _check_reach(call.principal, body.role, body.queues)
    return await call.parts.tokens.create(
        body.name,
        body.role,
        queues=body.queues,
        lasts=None if body.lasts_s is None else timedelta(seconds=body.lasts_s),
        actor=call.actor,
        request_id=call.request_id,
    )


@handles(api.LIST_TOKENS)
async def list_tokens(call: Call) -> api.TokenList:
    """Return the tokens that the principal may see."""
    views = await call.parts.tokens.list(ended=call.query.ended)
    return api.TokenList(tokens=tuple(view for view in views if _sees(call.principal, view)))


@handles(api.GET_TOKEN)
async def get_token(call: Call) -> TokenView:
    """Return a token by its name or id.

    Raise `UnknownToken` for an invisible one too.
    """
    view = await call.parts.tokens.get(call.path["token_name"])
    if not _sees(call.principal, view):
        raise unknown_token(call.path["token_name"])
    return view


@handles(api.ROTATE_TOKEN)
async def rotate_token(call: Call) -> Issued:
    """Replace the secret of a token and return it; it is shown only once."""
    body: api.RotateRequest = call.body
    view = await get_token(call)
    issued = await call.parts.tokens.rotate(
        view.id,
        overlap=timedelta(seconds=body.overlap_s),
        actor=call.actor,
        reason=body.reason,
        request_id=call.request_id,
    )
    call.parts.check.forget(view.id)
    return issued


@handles(api.REVOKE_TOKEN)
async def revoke_token(call: Call) -> TokenView:
    """Revoke a token."""
    body: api.RevokeRequest = call.body
    revoked = await call.parts.tokens.revoke(
        call.path["token_name"],
        actor=call.actor,
        reason=body.reason,
        request_id=call.request_id,
        sees=partial(_sees, call.principal),
    )
    call.parts.check.forget(revoked.id)
    return revoked


def _sees(principal: Principal, view: TokenView) -> bool:
    """Return whether a token is for some of the principal's queues only."""
    return not principal.scoped or (bool(view.queues) and principal.queues.issuperset(view.queues))


def _check_reach(principal: Principal, role: Role, queues: tuple[str, ...]) -> None:
    """Raise unless the principal has the role and the queues of the token.

    A higher role and more queues are enough.
    """
    if not (principal.may(Role.ADMIN) or principal.may(role)):
        principal.need(role)
    if principal.scoped and not queues:
        own = sorted(principal.queues)
        raise NotAllowed(
            f"{principal.name} is restricted to {', '.join(own)}, and the token would be for all queues.",
            todo="Name the queues that it is for.",
            allowed=own,
            facts={"principal": principal.name, "queues": own},
        )
    principal.need_queues(queues)


MOST_BYTES = 1_024


@handles(api.SIGN_IN, most=lambda _: MOST_BYTES)
async def sign_in(call: Call) -> Response:
    """Open a session with a token; the browser keeps only the cookie."""
    credentials: api.SignIn = call.body
    principal = await call.parts.check.principal_of(credentials.token, call.address)
    call.parts.sign_ins.take(principal.name)
    opened = await call.parts.sessions.open(principal)
    encrypted = is_encrypted(call.headers, tls=_tls(call))
    cookie = set_cookie(call.headers, opened.text, int(LIFETIME.seconds), encrypted=encrypted)
    body = msgspec.json.encode(_seen(principal))
    return Response(body, media_type="application/json", headers={"Set-Cookie": cookie})


@handles(api.SHOW_SESSION)
async def show_session(call: Call) -> api.SignedIn:
    """Return the principal of the request."""
    return _seen(call.principal)


@handles(api.SIGN_OUT)
async def sign_out(call: Call) -> Response:
    """End the session of this browser."""
    await call.parts.sessions.close(session_of(call.headers, tls=_tls(call)))
    cookie = cleared_cookie(call.headers, tls=_tls(call))
    body = msgspec.json.encode(api.SignedOut())
    return Response(body, media_type="application/json", headers={"Set-Cookie": cookie})


def _tls(call: Call) -> bool:
    return call.parts.settings.tls_cert is not None


def _seen(principal: Principal) -> api.SignedIn:
    roles = tuple(role for role in Role if principal.may(role))
    return api.SignedIn(
        name=principal.name,
        roles=roles,
        queues=tuple(sorted(principal.queues)),
        signed_in=bool(principal.token_id),
    )
