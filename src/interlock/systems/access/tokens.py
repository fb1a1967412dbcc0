"""Making, listing and revoking tokens."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial

import msgspec

from interlock.engine.applying import Applied, Decision, Engine
from interlock.engine.paging import every_record
from interlock.errors import InterlockError
from interlock.machine import Event, Moved
from interlock.store.records import Change, Commit, Committed, Key, Note, Query, Record, StepLine
from interlock.systems.access.lifecycle import ACTIVE, LIFETIME, TOKEN, TokenState, expire, revoke
from interlock.systems.access.principals import Role
from interlock.systems.access.secret import ID_BYTES, SECRET_BYTES, Secret

MAX_LIFETIME = timedelta(days=3_660)
_NAME = re.compile(r"[\w.@-]{1,64}", re.ASCII)


class UnknownToken(InterlockError):
    """No token goes by that name or id."""

    code = "unknown_token"
    status = 404


class InvalidToken(InterlockError):
    """A token that cannot be made as it was asked for; nothing was stored."""

    code = "invalid_token"
    status = 422


class TokenBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the record of a token keeps."""

    name: str
    role: Role
    digest: str
    queues: tuple[str, ...] = ()
    expires_at: datetime | None = None


class TokenView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A token without its secret, of which nothing is kept that could be shown."""

    id: str
    name: str
    role: Role
    state: str
    created_at: datetime
    queues: tuple[str, ...] = ()
    expires_at: datetime | None = None


class Issued(msgspec.Struct, frozen=True):
    """A new token; this is the only time that it is shown."""

    token: str
    view: TokenView

    def __repr__(self) -> str:
        return f"<issued {self.view.name}>"


class Tokens:
    """The tokens in a store."""

    def __init__(self, engine: Engine, *, draw: Callable[[int], str] = secrets.token_hex) -> None:
        self._engine = engine
        self._draw = draw

    async def create(
        self,
        name: str,
        role: Role,
        *,
        queues: Sequence[str] = (),
        lasts: timedelta | None = timedelta(seconds=LIFETIME.seconds),
        actor: str = "",
    ) -> Issued:
        """A new token under a name that no active one has; `lasts=None` makes one that does not expire."""
        _check(name, queues, lasts)
        if any(view.name == name for view in await self.list()):
            raise InvalidToken(
                f"There is an active token {name} already.",
                todo=f"Take another name, or revoke it first: interlock token revoke {name}",
                facts={"name": name},
            )
        secret = Secret(self._draw(ID_BYTES), self._draw(SECRET_BYTES))

        def decide(_: Sequence[Record | None], now: datetime) -> Decision[TokenView]:
            body = TokenBody(
                name=name,
                role=role,
                digest=secret.digest,
                queues=tuple(sorted(set(queues))),
                expires_at=now + lasts if lasts is not None else None,
            )
            note = Note(actor=actor, reason=f"{name} ({role})")
            change = Change(
                kind=TOKEN.name,
                id=secret.id,
                expected=0,
                state=ACTIVE,
                body=msgspec.json.encode(body),
                deadline_at=body.expires_at,
                note=note,
            )
            return Decision(_view(secret.id, ACTIVE, now, body), Commit(changes=(change,)))

        applied = await self._engine.apply([], decide)
        if not isinstance(applied, Applied):
            raise TypeError("a token is made without a request id")
        return Issued(secret.text, applied.answer)

    async def list(self, *, ended: bool = False) -> list[TokenView]:
        """The active ones, the oldest first; with `ended` all that have not been pruned."""
        views = [view_of(record) async for record in every_record(self._engine.store, TOKEN.name)]
        return [view for view in views if ended or view.state == ACTIVE]

    async def any(self) -> bool:
        """Whether there is an active one."""
        query = Query(kind=TOKEN.name, states=(ACTIVE,), limit=1)
        return bool((await self._engine.store.find(query)).records)

    async def load(self, token_id: str) -> Record | None:
        """The record of a token."""
        return (await self._engine.store.load([Key(TOKEN.name, token_id)]))[0]

    async def revoke(self, name: str, *, actor: str = "", reason: str = "") -> TokenView:
        """Take a token back, by its name or its id. Servers that know it believe it for seconds more."""
        token_id = await self._find(name)

        def decide(found: Sequence[Record | None], _: datetime) -> Decision[TokenView]:
            record = _present(name, found[0])
            change = _moved(record, revoke, actor=actor, reason=reason)
            answer = _view(record.id, change.state, record.created_at, read_body(record))
            return Decision(answer, Commit(changes=(change,)))

        applied = await self._engine.apply([Key(TOKEN.name, token_id)], decide)
        if not isinstance(applied, Applied):
            raise TypeError("a token is revoked without a request id")
        return applied.answer

    async def sweep(self, *, limit: int = 100) -> int:
        """Say of those whose time is over that they have expired; they let nobody in before that either."""

        def decide(records: Sequence[Record], _: datetime) -> list[Commit]:
            moved = partial(_moved, actor="clock", reason="")
            return [Commit(changes=(moved(record, expire),)) for record in records]

        outcomes = await self._engine.due([TOKEN.name], limit, decide)
        return sum(isinstance(outcome, Committed) for outcome in outcomes)

    async def _find(self, name: str) -> str:
        named = [view for view in await self.list(ended=True) if name in (view.name, view.id)]
        active = [view for view in named if view.state == ACTIVE]
        if not named:
            known = ", ".join(view.name for view in await self.list()) or "none"
            raise UnknownToken(
                f"There is no token {name}.", todo=f"Active ones: {known}.", facts={"name": name}
            )
        return (active or named)[-1].id


def view_of(record: Record) -> TokenView:
    """A token as it is listed."""
    return _view(record.id, record.state, record.created_at, read_body(record))


def read_body(record: Record) -> TokenBody:
    """What the record of a token keeps."""
    return msgspec.json.decode(record.body, type=TokenBody)


def _view(token_id: str, state: str, created_at: datetime, body: TokenBody) -> TokenView:
    return TokenView(
        id=token_id,
        name=body.name,
        role=body.role,
        state=state,
        created_at=created_at,
        queues=body.queues,
        expires_at=body.expires_at,
    )


def _moved(record: Record, event: Event, *, actor: str, reason: str) -> Change:
    decision = TOKEN.decide(TokenState(record.state), None, event)
    if not isinstance(decision, Moved):
        raise decision.error()
    steps = tuple(
        StepLine(TOKEN.name, "", step.event, step.source, step.target, step.owner) for step in decision.steps
    )
    return Change(
        kind=TOKEN.name,
        id=record.id,
        expected=record.version,
        state=decision.state,
        body=record.body,
        note=Note(steps=steps, actor=actor, reason=reason),
    )


def _present(name: str, record: Record | None) -> Record:
    if record is None:
        raise UnknownToken(f"There is no token {name} any more.", facts={"name": name})
    return record


def _check(name: str, queues: Sequence[str], lasts: timedelta | None) -> None:
    faults = []
    if not _NAME.fullmatch(name) or name.startswith("il_"):
        faults.append("a name has 1 to 64 letters, digits and _ . @ -, and does not look like a token")
    if any(not 1 <= len(queue) <= 64 or not queue.isprintable() for queue in queues):
        faults.append("the name of a queue has 1 to 64 printable characters")
    if lasts is not None and not timedelta(0) < lasts <= MAX_LIFETIME:
        faults.append(f"it lasts for more than nothing and for at most {MAX_LIFETIME.days} days")
    if faults:
        raise InvalidToken(
            "The token cannot be made: " + "; ".join(faults) + ".",
            todo="Correct it and ask again; nothing was stored.",
            facts={"name": name, "faults": faults},
        )
