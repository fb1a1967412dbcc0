"""Sessions of browsers: sign in with a token once, and send a cookie afterwards.

A session has a secret of its own, of which only a digest is kept. It allows what its token allows, and ends
with the token, within seconds on every server. The browser does not keep the token.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from interlock.engine.aggregate import RecordKind
from interlock.engine.unit_of_work import Decision, Engine
from interlock.errors import InterlockError
from interlock.machine import Deadline, Event, Machine, command, end, ignore, on, state, timer
from interlock.store.records import Change, Commit, Committed, Key, Query, Record
from interlock.systems.access.authentication import BELIEVED_S, MAX_REMEMBERED, TokenCheck, not_signed_in
from interlock.systems.access.principals import NotSignedIn, Principal, Role
from interlock.systems.access.secret import ID_BYTES, SECRET_BYTES, Secret, read_secret
from interlock.wire.views import View

MOST_LISTED = 500


class SessionState(StrEnum):
    """Where a session stands."""

    OPEN = "open"
    ENDED = "ended"
    EXPIRED = "expired"


OPEN, ENDED, EXPIRED = SessionState.OPEN, SessionState.ENDED, SessionState.EXPIRED

sign_out = command("sign_out", "End the session of this browser.", by="person")
revoke = command("revoke", "End the session of another browser.", by="admin")
expire = timer("expire", "Its time is over.", by="clock")

LIFETIME = Deadline(expire, "session_lifetime_s", 12 * 3_600.0, since="the browser signed in")

# fmt: off
SESSION = Machine[SessionState, None](
    "session",
    "A browser that has signed in with a token.",
    initial=OPEN,
    spine=(OPEN, EXPIRED),
    stop=(sign_out, revoke),
    states=(
        state(OPEN, "The browser is let in, as far as its token is.", turn="person", within=LIFETIME),
        end(ENDED, "The browser has signed out, or was signed out."),
        end(EXPIRED, "Its time is over."),
    ),
    rows=(
        on(sign_out, OPEN, ENDED, owner="person", why="A browser that is shared must not stay signed in."),
        on(revoke, OPEN, ENDED, owner="admin", why="A browser that is lost must not stay signed in."),
        on(expire, OPEN, EXPIRED, owner="clock", why="A browser that is left open must not stay signed in."),
        ignore(sign_out, (ENDED, EXPIRED), why="it is over"),
        ignore(revoke, (ENDED, EXPIRED), why="it is over"),
        ignore(expire, (ENDED, EXPIRED), why="it is over"),
    ),
)
# fmt: on


class SessionBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the record of a session keeps."""

    name: str
    """Of its token."""
    token_id: str
    token_digest: str
    """Of the secret that was used to sign in: a rotated token ends the sessions of its old secret."""
    digest: str
    expires_at: datetime


_SESSIONS = RecordKind(SESSION, SessionBody)


class SessionView(View, frozen=True, kw_only=True):
    """A browser that has signed in, without its secret."""

    id: str
    name: str
    """Of the token that was used."""
    token_id: str
    state: str
    created_at: datetime
    expires_at: datetime


class UnknownSession(InterlockError, code="unknown_session", status=404):
    """No session has this id, or it has ended."""


class Sessions:
    """The sessions in a store."""

    def __init__(
        self,
        engine: Engine,
        check: TokenCheck,
        *,
        draw: Callable[[int], str] = secrets.token_hex,
        believed_s: float = BELIEVED_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._check = check
        self._draw = draw
        self._believed_s = believed_s
        self._monotonic = monotonic
        self._known: OrderedDict[str, tuple[float, Record | None]] = OrderedDict()

    async def open(self, principal: Principal) -> Secret:
        """Open a session for the principal of a token; its secret is shown once, to the browser alone."""
        principal.need(Role.VIEWER)
        secret = Secret(self._draw(ID_BYTES), self._draw(SECRET_BYTES), SESSION.name)

        def decide(_: Sequence[Record | None], now: datetime) -> Decision[None]:
            body = SessionBody(
                name=principal.name,
                token_id=principal.token_id,
                token_digest=principal.digest,
                digest=secret.digest,
                expires_at=now + timedelta(seconds=LIFETIME.seconds),
            )
            session = _SESSIONS.new(secret.id, body, now)
            change = session.change(actor=principal.name, reason="signed in")
            return Decision(None, Commit(changes=(change,)))

        await self._engine.apply([], decide)
        return secret

    async def principal_of(self, text: str, address: str = "") -> Principal:
        """Return the principal of a session; raises `NotSignedIn`, which says the same for every reason."""
        # Also for a session that is not there the digest is worked out and compared.
        secret = read_secret(text, SESSION.name) or Secret("", "", SESSION.name)
        body = await self._body_of(secret.id)
        if not hmac.compare_digest(secret.digest, body.digest if body is not None else "0" * 64):
            body = None
        if body is None:
            raise not_signed_in("The session is not known, or has ended.")
        found = await self._check.principal_behind(body.token_id, body.token_digest, address)
        return msgspec.structs.replace(found, session_id=secret.id)

    async def is_still(self, principal: Principal) -> bool:
        """Return whether the session, or the token, by which a principal was let in still lets it in."""
        if principal.session_id and await self._body_of(principal.session_id) is None:
            return False
        try:
            await self._check.look(principal.token_id, principal.digest)
        except NotSignedIn:
            return False
        return True

    async def close(self, text: str) -> None:
        """Sign out. What is not the secret of an open session ends nothing."""
        secret = read_secret(text, SESSION.name)
        if secret is None:
            return

        def decide(records: Sequence[Record | None], now: datetime) -> Decision[None]:
            record = records[0]
            if record is None or record.state != OPEN:
                return Decision(None)
            if not hmac.compare_digest(secret.digest, _read(record).digest):
                return Decision(None)
            name = _read(record).name
            change = _moved(record, sign_out, now, actor=name, reason="signed out")
            return Decision(None, Commit(changes=(change,)))

        await self._engine.apply([Key(SESSION.name, secret.id)], decide)
        self._known.pop(secret.id, None)

    async def list(self) -> list[SessionView]:
        """Return the open sessions, the newest first."""
        page = await self._engine.store.find(Query(kind=SESSION.name, states=(OPEN,), limit=MOST_LISTED))
        now = await self._engine.clock.now()
        return [view for view in map(_view, page.records) if view.expires_at > now]

    async def revoke(self, session_id: str, *, actor: str = "", reason: str = "") -> SessionView:
        """Sign a browser out; other servers believe its cookie for a few seconds more."""
        key = Key(SESSION.name, session_id)

        def decide(records: Sequence[Record | None], now: datetime) -> Decision[None]:
            record = records[0]
            if record is None or record.state != OPEN:
                raise UnknownSession(
                    f"No browser is signed in with the session {session_id[:64]}.",
                    todo="See which are: GET /api/server/sessions",
                    facts={"session_id": session_id[:64]},
                )
            change = _moved(record, revoke, now, actor=actor, reason=reason)
            return Decision(None, Commit(changes=(change,)))

        await self._engine.apply([key], decide)
        self._known.pop(session_id, None)
        (after,) = await self._engine.store.load([key])
        assert after is not None
        return _view(after)

    async def sweep(self, *, limit: int = 100) -> int:
        """Expire sessions whose time is over; they let nobody in before that either."""

        def decide(records: Sequence[Record], now: datetime) -> list[Commit]:
            ended = [_SESSIONS.fired(record, now) for record in records]
            return [Commit(changes=(session.change(actor="clock"),)) for session in ended]

        outcomes = await self._engine.due([SESSION.name], limit, decide)
        return sum(isinstance(outcome, Committed) for outcome in outcomes)

    async def _body_of(self, session_id: str) -> SessionBody | None:
        """Return what an open session keeps; None when it is not there, or is over by the store's clock."""
        record = await self._look_up(session_id) if session_id else None
        if record is None or record.state != OPEN:
            return None
        body = _read(record)
        return body if body.expires_at > await self._engine.clock.now() else None

    async def _look_up(self, session_id: str) -> Record | None:
        now = self._monotonic()
        known = self._known.get(session_id)
        if known is not None and now - known[0] < self._believed_s:
            return known[1]
        (record,) = await self._engine.store.load([Key(SESSION.name, session_id)])
        self._known[session_id] = now, record
        self._known.move_to_end(session_id)
        if len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)
        return record


def _read(record: Record) -> SessionBody:
    return _SESSIONS.body_of(record)


def _view(record: Record) -> SessionView:
    body = _read(record)
    return SessionView(
        id=record.id,
        name=body.name,
        token_id=body.token_id,
        state=record.state,
        created_at=record.created_at,
        expires_at=body.expires_at,
    )


def _moved(record: Record, event: Event, now: datetime, *, actor: str, reason: str) -> Change:
    session = _SESSIONS.of(record, now)
    session.must(event)
    return session.change(actor=actor, reason=reason)
