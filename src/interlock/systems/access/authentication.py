"""Authentication: from a token, or the session of a browser, to a principal.

A browser signs in with a token once, and sends a cookie afterwards.

Why: decision 0296.
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
from interlock.engine.clock import Clock
from interlock.engine.unit_of_work import Decision, Engine
from interlock.errors import NotSignedIn, UnknownSession
from interlock.machine import Deadline, Event, Machine, command, end, ignore, on, state, timer
from interlock.store.records import Commit, Committed, Key, Query, Record
from interlock.systems.access.principals import Principal
from interlock.systems.access.tokens import (
    ID_BYTES,
    SECRET_BYTES,
    WORKING,
    TokenBody,
    Tokens,
    TokenSecret,
    Use,
    read_body,
    read_secret,
)
from interlock.wire.access import (
    Role,
    SessionView,
)

BELIEVED_S = 3.0
USES_EVERY_S = 60.0
"""Minimum interval in which each server stores the last use of a token."""
MAX_REMEMBERED = 10_000

ADVICE = "Send `Authorization: Bearer il_…`; make a token with: interlock token create NAME --role viewer"


class TokenCheck:
    """Authenticates tokens."""

    def __init__(
        self,
        tokens: Tokens,
        clock: Clock,
        *,
        believed_s: float = BELIEVED_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokens = tokens
        self._clock = clock
        self._believed_s = believed_s
        self._monotonic = monotonic
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._uses: dict[str, tuple[float, str]] = {}
        self._stored: dict[str, float] = {}

    async def principal_of(self, text: str, address: str = "") -> Principal:
        """Return the principal of a token.

        Raise the same `NotSignedIn` for every reason.
        """
        # The digest is also computed and compared for a missing token, in constant time.
        secret = read_secret(text) or TokenSecret("", "")
        return await self.principal_behind(secret.id, secret.digest, address)

    def known_principal(self, text: str, address: str = "") -> Principal | None:
        """Return the principal of a token that was looked up a moment ago.

        Return None for any other, and for one that has expired: the store has to be asked.
        """
        secret = read_secret(text)
        known = None if secret is None else self._cached(secret.id, secret.digest)
        if secret is None or known is None or not known.works(secret.digest):
            return None
        until = known.until(secret.digest)
        if until is not None and ((now := self._clock.known()) is None or until <= now):
            return None
        self._uses[secret.id] = self._monotonic(), address
        return _principal_of(known.body, secret.id, secret.digest)

    async def principal_behind(self, token_id: str, digest: str, address: str = "") -> Principal:
        """Return the principal of a token by the digest of its secret.

        A session stores the digest.
        """
        principal = await self.look(token_id, digest)
        self._uses[token_id] = self._monotonic(), address
        return principal

    async def look(self, token_id: str, digest: str) -> Principal:
        """Return the principal of a token without counting that as a use.

        Raises `NotSignedIn`.
        """
        known = await self._look_up(token_id, digest) if token_id else _NOBODY
        if not known.works(digest):
            raise not_signed_in("The token is unknown, expired or revoked.")
        until = known.until(digest)
        if until is not None and until <= await self._clock.now():
            raise not_signed_in("The token is unknown, expired or revoked.")
        return _principal_of(known.body, token_id, digest)

    def forget(self, token_id: str) -> None:
        """Remove the token from the cache: it was changed here."""
        self._known.pop(token_id, None)

    async def store_uses(self) -> int:
        """Store the last use of each token that was used; return how many were."""
        now, moment = self._monotonic(), await self._clock.now()
        due = {
            token_id: use
            for token_id, use in self._uses.items()
            if now - self._stored.get(token_id, float("-inf")) >= USES_EVERY_S
        }
        uses = {
            token_id: Use(moment - timedelta(seconds=now - at), address)
            for token_id, (at, address) in due.items()
        }
        stored = await self._tokens.note_uses(uses) if uses else 0
        for token_id, use in due.items():
            self._stored[token_id] = now
            if self._uses.get(token_id) == use:
                del self._uses[token_id]
        self._stored = {each: at for each, at in self._stored.items() if now - at < USES_EVERY_S}
        return stored

    def _cached(self, token_id: str, digest: str) -> _Known | None:
        known = self._known.get(token_id)
        if known is None or self._monotonic() - known.at >= self._believed_s or not known.may_be(digest):
            return None
        return known

    async def _look_up(self, token_id: str, digest: str) -> _Known:
        known = self._cached(token_id, digest)
        if known is not None:
            return known
        now = self._monotonic()
        record = await self._tokens.load(token_id)
        self._known[token_id] = known = _Known(now, record)
        self._known.move_to_end(token_id)
        if len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)
        return known


class _Known:
    """A cached token."""

    __slots__ = ("at", "body", "record")

    def __init__(self, at: float, record: Record | None) -> None:
        self.at = at
        self.record = record
        self.body = read_body(record) if record is not None else _NO_BODY

    def fits(self, digest: str) -> bool:
        """Return whether the secret is the current or the rotated one.

        Compared in constant time.
        """
        old = self.body.old_digest
        return hmac.compare_digest(digest, self.body.digest) or (
            bool(old) and hmac.compare_digest(digest, old)
        )

    def works(self, digest: str) -> bool:
        """Return whether the secret fits a token that was not revoked.

        It may have expired.
        """
        return self.record is not None and self.fits(digest) and self.record.state in WORKING

    def may_be(self, digest: str) -> bool:
        """Return whether reading the record again is pointless.

        The record is missing, or the secret matches.
        """
        return self.record is None or self.fits(digest)

    def until(self, digest: str) -> datetime | None:
        """Return when the secret expires; a rotated one expires earlier."""
        if hmac.compare_digest(digest, self.body.digest):
            return self.body.expires_at
        return self.body.old_until


def _principal_of(body: TokenBody, token_id: str, digest: str) -> Principal:
    return Principal(
        name=body.name,
        roles=(body.role,),
        queues=frozenset(body.queues),
        token_id=token_id,
        digest=digest,
    )


_NO_BODY = TokenBody(name="", role=Role.VIEWER, digest="0" * 64)
_NOBODY = _Known(0.0, None)


def not_signed_in(sentence: str) -> NotSignedIn:
    """Return the error of an unauthenticated request, with advice."""
    return NotSignedIn(sentence, todo=ADVICE)


MOST_LISTED = 500


class SessionState(StrEnum):
    """The states of a session."""

    OPEN = "open"
    ENDED = "ended"
    EXPIRED = "expired"


OPEN, ENDED, EXPIRED = SessionState.OPEN, SessionState.ENDED, SessionState.EXPIRED

sign_out: Event = command("sign_out", "End the session of this browser.", by="person")
revoke: Event = command("revoke", "End the session of another browser.", by="admin")
expire: Event = timer("expire", "It has expired.", by="clock")

LIFETIME = Deadline(expire, "session_lifetime_s", 12 * 3_600.0, since="the browser signed in")

# fmt: off
SESSION = Machine[SessionState, None](
    "session",
    "A browser that has signed in with a token.",
    initial=OPEN,
    spine=(OPEN, EXPIRED),
    stop=(sign_out, revoke),
    states=(
        state(OPEN, "The browser has the access of its token.", turn="person", within=LIFETIME),
        end(ENDED, "The browser has signed out, or was signed out."),
        end(EXPIRED, "It has expired."),
    ),
    rows=(
        on(sign_out, OPEN, ENDED, owner="person", why="A shared browser must not stay signed in."),
        on(revoke, OPEN, ENDED, owner="admin", why="A lost browser must not stay signed in."),
        on(expire, OPEN, EXPIRED, owner="clock", why="An open browser must not stay signed in."),
        ignore(sign_out, (ENDED, EXPIRED), why="it is over"),
        ignore(revoke, (ENDED, EXPIRED), why="it is over"),
        ignore(expire, (ENDED, EXPIRED), why="it is over"),
    ),
)
# fmt: on


class SessionBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a session's record."""

    name: str
    """The name of its token."""
    token_id: str
    token_digest: str
    """Digest of the secret used to sign in: rotating a token ends the sessions of its old secret."""
    digest: str
    expires_at: datetime


_SESSIONS = RecordKind(SESSION, SessionBody)


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

    async def open(self, principal: Principal) -> TokenSecret:
        """Open a session; its secret is shown once, only to the browser."""
        principal.need(Role.VIEWER)
        secret = TokenSecret(self._draw(ID_BYTES), self._draw(SECRET_BYTES), SESSION.name)

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
        """Return the principal of a session.

        Raise the same `NotSignedIn` for every reason.
        """
        # The digest is also computed and compared for a missing session, in constant time.
        secret = read_secret(text, SESSION.name) or TokenSecret("", "", SESSION.name)
        body = await self._body_of(secret.id)
        if not hmac.compare_digest(secret.digest, body.digest if body is not None else "0" * 64):
            body = None
        if body is None:
            raise not_signed_in("The session is unknown or has ended.")
        found = await self._check.principal_behind(body.token_id, body.token_digest, address)
        return msgspec.structs.replace(found, session_id=secret.id)

    async def is_still(self, principal: Principal) -> bool:
        """Return whether the session or token of a principal is still valid."""
        if principal.session_id and await self._body_of(principal.session_id) is None:
            return False
        try:
            await self._check.look(principal.token_id, principal.digest)
        except NotSignedIn:
            return False
        return True

    async def close(self, text: str) -> None:
        """Sign out; ignore anything but the secret of an open session."""
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
            change = _SESSIONS.step(record, sign_out, now, actor=name, reason="signed out")
            return Decision(None, Commit(changes=(change,)))

        await self._engine.apply([Key(SESSION.name, secret.id)], decide)
        self._known.pop(secret.id, None)

    async def list(self) -> list[SessionView]:
        """Return the open sessions, the newest first."""
        page = await self._engine.store.find(Query(kind=SESSION.name, states=(OPEN,), limit=MOST_LISTED))
        now = await self._engine.clock.now()
        return [view for view in map(_view, page.records) if view.expires_at > now]

    async def revoke(self, session_id: str, *, actor: str = "", reason: str = "") -> SessionView:
        """Sign a browser out.

        Other servers accept its cookie for a few more seconds.
        """
        key = Key(SESSION.name, session_id)

        def decide(records: Sequence[Record | None], now: datetime) -> Decision[None]:
            record = records[0]
            if record is None or record.state != OPEN:
                raise UnknownSession(
                    f"No browser is signed in with the session {session_id[:64]}.",
                    todo="See which are: GET /api/server/sessions",
                    facts={"session_id": session_id[:64]},
                )
            change = _SESSIONS.step(record, revoke, now, actor=actor, reason=reason)
            return Decision(None, Commit(changes=(change,)))

        await self._engine.apply([key], decide)
        self._known.pop(session_id, None)
        (after,) = await self._engine.store.load([key])
        assert after is not None
        return _view(after)

    async def sweep(self, *, limit: int = 100) -> int:
        """Expire sessions whose time is over; they are invalid before that, too."""

        def decide(records: Sequence[Record], now: datetime) -> list[Commit]:
            ended = [_SESSIONS.fired(record, now) for record in records]
            return [Commit(changes=(session.change(actor="clock"),)) for session in ended]

        outcomes = await self._engine.due([SESSION.name], limit, decide)
        return sum(isinstance(outcome, Committed) for outcome in outcomes)

    async def _body_of(self, session_id: str) -> SessionBody | None:
        """Return the body of an open session.

        Return None if it is missing, or expired by the store's clock.
        """
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
