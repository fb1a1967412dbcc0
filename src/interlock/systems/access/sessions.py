"""Sessions of browsers: sign in with a token once, and be known by a cookie afterwards.

A session has a secret of its own, of which only a digest is kept, and the reach of its token: it ends with
the token, within seconds on every server. A browser never has to keep the token itself.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from interlock.engine.applying import Applied, Decision, Engine
from interlock.machine import Deadline, Event, Machine, Moved, command, end, ignore, on, state, timer
from interlock.store.records import Change, Commit, Committed, Key, Note, Record, StepLine
from interlock.systems.access.checking import TokenCheck, not_signed_in
from interlock.systems.access.principals import Principal
from interlock.systems.access.secret import ID_BYTES, SECRET_BYTES

BELIEVED_S = 3.0
"""How long a session is believed without another look at its record, as with tokens."""
MAX_REMEMBERED = 10_000

_SHAPE = re.compile(r"is_([0-9a-f]{16})_([0-9a-f]{64})", re.ASCII)


class SessionState(StrEnum):
    """Where a session stands."""

    OPEN = "open"
    ENDED = "ended"
    EXPIRED = "expired"


OPEN, ENDED, EXPIRED = SessionState.OPEN, SessionState.ENDED, SessionState.EXPIRED

sign_out = command("sign_out", "Whoever signed in is done.", by="person")
expire = timer("expire", "Its time is over.", by="clock")

LIFETIME = Deadline(expire, "session_lifetime_s", 12 * 3_600.0, since="somebody signed in")

# fmt: off
SESSION = Machine[SessionState, None](
    "session",
    "A browser in which somebody has signed in with a token.",
    initial=OPEN,
    spine=(OPEN, EXPIRED),
    stop=(sign_out,),
    states=(
        state(OPEN, "The browser is let in, as far as its token is.", turn="person", within=LIFETIME),
        end(ENDED, "Somebody has signed out."),
        end(EXPIRED, "Its time is over."),
    ),
    rows=(
        on(sign_out, OPEN, ENDED, owner="person", why="Nobody is to be let in by it any more."),
        on(expire, OPEN, EXPIRED, owner="clock", why="A browser that is left open is found one day."),
        ignore(sign_out, (ENDED, EXPIRED), why="it is over"),
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
    """Of the secret that somebody signed in with: a rotated token ends the sessions of its old secret."""
    digest: str
    expires_at: datetime


class Opened(msgspec.Struct, frozen=True):
    """A new session; the secret is shown once, to the browser alone."""

    secret: str
    principal: Principal
    expires_at: datetime

    def __repr__(self) -> str:
        return f"<session of {self.principal.name}>"


class Sessions:
    """The sessions in a store."""

    def __init__(
        self,
        engine: Engine,
        check: TokenCheck,
        *,
        draw: Callable[[int], str] = secrets.token_hex,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._check = check
        self._draw = draw
        self._monotonic = monotonic
        self._known: OrderedDict[str, tuple[float, Record | None]] = OrderedDict()

    async def open(self, token: str, address: str = "") -> Opened:
        """Sign in with a token; raises `NotSignedIn` for one that does not work."""
        principal = await self._check.principal_of(token, address)
        session_id, secret = self._draw(ID_BYTES), self._draw(SECRET_BYTES)

        def decide(_: Sequence[Record | None], now: datetime) -> Decision[datetime]:
            body = SessionBody(
                name=principal.name,
                token_id=principal.token_id,
                token_digest=_digest(token.rpartition("_")[2]),
                digest=_digest(secret),
                expires_at=now + timedelta(seconds=LIFETIME.seconds),
            )
            change = Change(
                kind=SESSION.name,
                id=session_id,
                expected=0,
                state=OPEN,
                body=msgspec.json.encode(body),
                deadline_at=body.expires_at,
                note=Note(actor=principal.name, reason="signed in"),
            )
            return Decision(body.expires_at, Commit(changes=(change,)))

        applied = await self._engine.apply([], decide)
        if not isinstance(applied, Applied):
            raise TypeError("a session is opened without a request id")
        return Opened(f"is_{session_id}_{secret}", principal, applied.answer)

    async def principal_of(self, text: str, address: str = "") -> Principal:
        """Return whoever has signed in; raises `NotSignedIn`, which says the same for every reason."""
        found = _SHAPE.fullmatch(text)
        record = await self._look_up(found[1]) if found else None
        body = msgspec.json.decode(record.body, type=SessionBody) if record is not None else None
        digest = _digest(found[2] if found else "")
        fits = hmac.compare_digest(digest, body.digest if body is not None else "0" * 64)
        if record is None or body is None or not fits or record.state != OPEN:
            raise not_signed_in("The session is not known, or has ended.")
        if body.expires_at <= await self._engine.clock.now():
            raise not_signed_in("The session is not known, or has ended.")
        return await self._check.principal_behind(body.token_id, body.token_digest, address)

    async def close(self, text: str) -> None:
        """Sign out."""
        found = _SHAPE.fullmatch(text)
        if found is None:
            return

        def decide(records: Sequence[Record | None], _: datetime) -> Decision[None]:
            record = records[0]
            if record is None or record.state != OPEN:
                return Decision(None)
            return Decision(None, Commit(changes=(_moved(record, sign_out, "signed out"),)))

        await self._engine.apply([Key(SESSION.name, found[1])], decide)
        self._known.pop(found[1], None)

    async def sweep(self, *, limit: int = 100) -> int:
        """Expire sessions whose time is over; they let nobody in before that either."""

        def decide(records: Sequence[Record], _: datetime) -> list[Commit]:
            return [Commit(changes=(_moved(record, expire, ""),)) for record in records]

        outcomes = await self._engine.due([SESSION.name], limit, decide)
        return sum(isinstance(outcome, Committed) for outcome in outcomes)

    async def _look_up(self, session_id: str) -> Record | None:
        now = self._monotonic()
        known = self._known.get(session_id)
        if known is not None and now - known[0] < BELIEVED_S:
            return known[1]
        (record,) = await self._engine.store.load([Key(SESSION.name, session_id)])
        self._known[session_id] = now, record
        self._known.move_to_end(session_id)
        if len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)
        return record


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _moved(record: Record, event: Event, reason: str) -> Change:
    decision = SESSION.decide(SessionState(record.state), None, event)
    if not isinstance(decision, Moved):
        raise decision.error()
    steps = tuple(
        StepLine(SESSION.name, "", step.event, str(step.source), str(step.target), str(step.owner))
        for step in decision.steps
    )
    body = msgspec.json.decode(record.body, type=SessionBody)
    return Change(
        kind=SESSION.name,
        id=record.id,
        expected=record.version,
        expected_at=record.updated_at,
        state=decision.state,
        body=record.body,
        note=Note(steps=steps, actor=body.name if event is sign_out else "clock", reason=reason),
    )
