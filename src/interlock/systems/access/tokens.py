"""Access tokens: their table, the form of their secrets; create, list, rotate and revoke them.

    il_6f2c9d41a07be358_8c1f…64 hex digits…    a token
    is_0b7d1f52c9e6a384_51d0…                  a session

The first part names the record, so that checking a token is one lookup. The second is a secret of 256 bits of
which only a digest is stored; it cannot be guessed, so a plain SHA-256 is enough.

Why: decision 0300.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial

import msgspec

from interlock.engine.aggregate import Entity, RecordKind, rewritten
from interlock.engine.bulk import Item, apply_all
from interlock.engine.loader import every_record
from interlock.engine.unit_of_work import Applied, Decision, Engine, IdempotencyKey, failed
from interlock.errors import InterlockError, InvalidToken, SecretShownOnce, UnknownToken
from interlock.machine import (
    STAY,
    Deadline,
    Event,
    Machine,
    Tone,
    command,
    end,
    ignore,
    on,
    state,
    timer,
)
from interlock.store.records import Change, Commit, Committed, Key, Query, Record, RequestReused
from interlock.wire.access import (
    MAX_LIFETIME,
    MAX_OVERLAP,
    OVERLAPPING,
    USUAL,
    Issued,
    Role,
    TokenView,
)


class TokenState(StrEnum):
    """The states of a token."""

    ACTIVE = "active"
    ROTATING = "rotating"
    REVOKED = "revoked"
    EXPIRED = "expired"


ACTIVE, ROTATING = TokenState.ACTIVE, TokenState.ROTATING
REVOKED, EXPIRED = TokenState.REVOKED, TokenState.EXPIRED
WORKING = (ACTIVE, ROTATING)
"""The states in which a token is valid."""

rotate: Event = command("rotate", "Replace the secret; the old one stays valid for a while.", by="admin")
rotate_at_once: Event = command(
    "rotate_at_once", "Replace the secret; the old one is revoked at once.", by="admin"
)
retire: Event = timer("retire", "The old secret expires.", by="clock")
revoke: Event = command("revoke", "A user revokes it.", by="admin")
expire: Event = timer("expire", "It has expired.", by="clock")

LIFETIME = Deadline(
    expire, "token_lifetime_s", USUAL.total_seconds(), since="it was made, unless it says otherwise"
)
"""Default lifetime of a token."""
OVERLAP = Deadline(
    retire, "token_overlap_s", OVERLAPPING.total_seconds(), since="it was rotated, unless it says otherwise"
)
"""Time for which the old secret stays valid after a rotation, to distribute the new one."""

# fmt: off
TOKEN = Machine[TokenState, None](
    "token",
    "A secret that authenticates a user or a program, with a role.",
    initial=ACTIVE,
    spine=(ACTIVE, ROTATING, EXPIRED),
    stop=(revoke,),
    states=(
        state(ACTIVE, "It grants access.", turn="admin", within=LIFETIME, tone=Tone.ACTIVE),
        state(ROTATING, "Both its new and its old secret grant access.", turn="clock", within=OVERLAP),
        end(REVOKED, "A user has revoked it."),
        end(EXPIRED, "It has expired."),
    ),
    rows=(
        on(rotate, ACTIVE, ROTATING, owner="admin", why="Holders of the old secret need time to change it."),
        on(rotate, ROTATING, STAY, owner="admin", arms=OVERLAP,
           why="The secret before the last one is revoked."),
        on(rotate_at_once, ACTIVE, STAY, owner="admin", why="The old secret may have leaked."),
        on(rotate_at_once, ROTATING, ACTIVE, owner="admin", why="An old secret may have leaked."),
        on(retire, ROTATING, ACTIVE, owner="clock", why="Every holder has had time to change it."),
        on(revoke, WORKING, REVOKED, owner="admin", why="It is no longer needed, or has leaked."),
        on(expire, WORKING, EXPIRED, owner="clock", why="A secret that never expires leaks one day."),
        ignore(retire, (ACTIVE, REVOKED, EXPIRED), why="no old secret is valid"),
        ignore(expire, (REVOKED, EXPIRED), why="it is over"),
    ),
)
# fmt: on


_SHAPE = re.compile(r"(il|is)_([0-9a-f]{16})_([0-9a-f]{64})", re.ASCII)
_PREFIXES = {"token": "il", "session": "is"}

ID_BYTES = 8
SECRET_BYTES = 32


class TokenSecret(msgspec.Struct, frozen=True):
    """A parsed token or session. Its representation hides the secret."""

    id: str
    secret: str
    kind: str = "token"

    def __repr__(self) -> str:
        return f"<{self.kind} {self.id}>"

    def __str__(self) -> str:
        return repr(self)

    @property
    def text(self) -> str:
        """The text of the token, which is shown once."""
        return f"{_PREFIXES[self.kind]}_{self.id}_{self.secret}"

    @property
    def digest(self) -> str:
        """The stored digest of the secret."""
        return hashlib.sha256(self.secret.encode()).hexdigest()


def read_secret(text: str, kind: str = "token") -> TokenSecret | None:
    """Parse a token or a session; return None if it is invalid."""
    found = _SHAPE.fullmatch(text)
    return TokenSecret(found[2], found[3], kind) if found and found[1] == _PREFIXES[kind] else None


_NAME = re.compile(r"[\w.@-]{1,64}", re.ASCII)


class TokenBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a token's record."""

    name: str
    role: Role
    digest: str
    queues: tuple[str, ...] = ()
    expires_at: datetime | None = None
    old_digest: str = ""
    """Digest of the previous secret, valid until `old_until`."""
    old_until: datetime | None = None
    rotated_at: datetime | None = None
    used_at: datetime | None = None
    used_from: str = ""
    cursor_key: str = ""
    """The key that seals cursors of this token; drawn on first use."""


def _ends_at(token: Entity[TokenBody]) -> datetime | None:
    """Return when the first of its secrets expires."""
    ends = [at for at in (token.body.old_until, token.body.expires_at) if at is not None]
    return min(ends, default=None)


_TOKENS = RecordKind(TOKEN, TokenBody, due={expire: _ends_at, retire: _ends_at})


class Use(msgspec.Struct, frozen=True):
    """The time and address of the last use of a token."""

    at: datetime
    address: str


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
        lasts: timedelta | None = USUAL,
        actor: str = "",
        request_id: str | None = None,
    ) -> Issued:
        """Create a token under a name without a valid token.

        `lasts=None` means no expiry.
        """
        _check(name, queues, lasts)
        idempotency_key = self._engine.key_for(
            request_id, f"create the token {name}", (role, sorted(set(queues)), lasts)
        )
        await self._not_again(idempotency_key, name)
        if any(view.name == name for view in await self.list()):
            raise _taken(name)
        secret = TokenSecret(self._draw(ID_BYTES), self._draw(SECRET_BYTES))

        def decide(_: Sequence[Record | None], now: datetime) -> Decision[TokenView]:
            body = TokenBody(
                name=name,
                role=role,
                digest=secret.digest,
                queues=tuple(sorted(set(queues))),
                expires_at=now + lasts if lasts is not None else None,
            )
            token = _TOKENS.new(secret.id, body, now)
            change = token.change(actor=actor, reason=f"{name} ({role})")
            return Decision(_view(secret.id, ACTIVE, now, body), _with_request(idempotency_key, change))

        applied = await self._engine.apply([], decide)
        if not isinstance(applied, Applied):
            raise _shown_once(name)
        await self._keep_the_first(applied.answer)
        return Issued(secret.text, applied.answer)

    async def list(self, *, ended: bool = False) -> list[TokenView]:
        """Return the valid tokens, the oldest first.

        With `ended` it returns all that were not pruned.
        """
        views = [view_of(record) async for record in every_record(self._engine.store, TOKEN.name)]
        return [view for view in views if ended or view.state in WORKING]

    async def get(self, name: str) -> TokenView:
        """Return a token by its name or id.

        Of several with the name it is the valid one, or the newest.
        """
        named = [view for view in await self.list(ended=True) if name in (view.name, view.id)]
        if not named:
            raise unknown_token(name)
        return ([view for view in named if view.state in WORKING] or named)[-1]

    async def any(self) -> bool:
        """Return whether there is a valid token."""
        query = Query(kind=TOKEN.name, states=WORKING, limit=1)
        return bool((await self._engine.store.find(query)).records)

    async def load(self, token_id: str) -> Record | None:
        """Return the record of a token."""
        return (await self._engine.store.load([Key(TOKEN.name, token_id)]))[0]

    async def rotate(
        self,
        name: str,
        *,
        overlap: timedelta = OVERLAPPING,
        actor: str = "",
        reason: str = "",
        request_id: str | None = None,
    ) -> Issued:
        """Give a token a new secret; the old one stays valid for the overlap.

        The store's clock measures the overlap. The new secret has the lifetime of the old one.
        """
        if not timedelta(0) <= overlap <= MAX_OVERLAP:
            raise InvalidToken(
                f"The old secret cannot stay valid for {overlap.total_seconds():g} s more.",
                todo=f"Give an overlap from 0 (at once) to {MAX_OVERLAP.days} days.",
                facts={"name": name, "overlap_s": overlap.total_seconds()},
            )
        idempotency_key = self._engine.key_for(request_id, f"rotate the token {name}", overlap)
        await self._not_again(idempotency_key, name)
        token_id = (await self.get(name)).id
        secret = TokenSecret(token_id, self._draw(SECRET_BYTES))

        def decide(found: Sequence[Record | None], now: datetime) -> Decision[TokenView]:
            record = _present(name, found[0])
            body = _rotated(record, secret.digest, now, overlap)
            event = rotate if overlap else rotate_at_once
            change = _TOKENS.step(record, event, now, body, actor=actor, reason=reason)
            return Decision(
                _view(record.id, change.state, record.created_at, body),
                _with_request(idempotency_key, change),
            )

        applied = await self._engine.apply([Key(TOKEN.name, token_id)], decide)
        if not isinstance(applied, Applied):
            raise _shown_once(name)
        return Issued(secret.text, applied.answer)

    async def revoke(
        self,
        name: str,
        *,
        actor: str = "",
        reason: str = "",
        request_id: str | None = None,
        sees: Callable[[TokenView], bool] | None = None,
    ) -> TokenView:
        """Revoke a token, by its name or id.

        Servers that have cached it accept it for a few more seconds. A token that `sees` hides is treated as
        missing.
        """
        idempotency_key = self._engine.key_for(request_id, f"revoke the token {name}", reason)

        def decide(found: Sequence[Record | None], now: datetime) -> Decision[TokenView]:
            record = _present(name, found[0])
            body = msgspec.structs.replace(read_body(record), old_digest="", old_until=None)
            change = _TOKENS.step(record, revoke, now, body, actor=actor, reason=reason)
            return Decision(
                _view(record.id, change.state, record.created_at, body),
                _with_request(idempotency_key, change),
            )

        async def do() -> TokenView:
            view = await self.get(name)
            if sees is not None and not sees(view):
                raise unknown_token(name)
            applied = await self._engine.apply_once(idempotency_key, [Key(TOKEN.name, view.id)], decide)
            return applied.answer if isinstance(applied, Applied) else await self.get(view.id)

        return await self._engine.answer_once(idempotency_key, TokenView, do)

    async def sweep(self, *, limit: int = 100) -> int:
        """Expire tokens and retire old secrets whose time is over.

        They are invalid before that, too.
        """

        def decide(records: Sequence[Record], now: datetime) -> list[Commit]:
            return [Commit(changes=(_swept(record, now),)) for record in records]

        outcomes = await self._engine.due([TOKEN.name], limit, decide)
        return sum(isinstance(outcome, Committed) for outcome in outcomes)

    async def note_uses(self, uses: Mapping[str, Use]) -> int:
        """Store the last use of each token, by its id.

        A later one that is stored already is kept.
        """
        items = [Item(Key(TOKEN.name, token_id), partial(_used, use)) for token_id, use in uses.items()]
        results = await apply_all(self._engine, items)
        if error := next((result for result in results if isinstance(result, InterlockError)), None):
            raise error
        return len(results)

    async def cursor_key(self, token_id: str) -> str:
        """Return the key that seals cursors of a token.

        The first server that needs it draws it.
        """
        drawn = self._draw(SECRET_BYTES)

        def decide(found: Sequence[Record | None], _: datetime) -> Decision[str]:
            record = _present(token_id, found[0])
            body = read_body(record)
            if body.cursor_key:
                return Decision(body.cursor_key)
            changed = msgspec.structs.replace(body, cursor_key=drawn)
            return Decision(drawn, Commit(changes=(rewritten(record, body=msgspec.json.encode(changed)),)))

        applied = await self._engine.apply([Key(TOKEN.name, token_id)], decide)
        if not isinstance(applied, Applied):
            raise TypeError("a key is drawn without a request id")
        return applied.answer

    async def _not_again(self, idempotency_key: IdempotencyKey | None, name: str) -> None:
        """Raise if a request was completed before: its secret is stored nowhere."""
        before = None if idempotency_key is None else await self._engine.recall(idempotency_key)
        if isinstance(before, RequestReused):
            raise failed(before)
        if before is not None:
            raise _shown_once(name)

    async def _keep_the_first(self, view: TokenView) -> None:
        """Revoke the later one of two tokens that took a name at the same time."""
        same = [each for each in await self.list() if each.name == view.name]
        if min(same, key=lambda each: (each.created_at, each.id), default=view).id != view.id:
            await self.revoke(view.id, reason="another token took the name at the same moment")
            raise _taken(view.name)


def view_of(record: Record) -> TokenView:
    """Return a token for display."""
    return _view(record.id, record.state, record.created_at, read_body(record))


def read_body(record: Record) -> TokenBody:
    """Return the body of a record."""
    return _TOKENS.body_of(record)


def unknown_token(name: str) -> UnknownToken:
    """Return the error of an unknown token, without repeating a secret."""
    shown = name if _NAME.fullmatch(name) and not name.startswith("il_") else "of that name"
    return UnknownToken(
        f"There is no token {shown}.", todo="List them: interlock token list", facts={"name": shown}
    )


def _view(token_id: str, state: str, created_at: datetime, body: TokenBody) -> TokenView:
    return TokenView(
        id=token_id,
        name=body.name,
        role=body.role,
        state=state,
        created_at=created_at,
        queues=body.queues,
        expires_at=body.expires_at,
        rotated_at=body.rotated_at,
        old_until=body.old_until if state == ROTATING else None,
        used_at=body.used_at,
        used_from=body.used_from,
    )


def _rotated(record: Record, digest: str, now: datetime, overlap: timedelta) -> TokenBody:
    """Return the body with the new secret.

    An old secret never outlives its lifetime.
    """
    body = read_body(record)
    until, expires_at = now + overlap, body.expires_at
    if expires_at is not None:
        until = min(until, expires_at)
        expires_at = now + (expires_at - (body.rotated_at or record.created_at))
    return msgspec.structs.replace(
        body,
        digest=digest,
        old_digest=body.digest if overlap else "",
        old_until=until if overlap else None,
        rotated_at=now,
        expires_at=expires_at,
    )


def _swept(record: Record, now: datetime) -> Change:
    body = read_body(record)
    over = body.expires_at is not None and body.expires_at <= now
    alone = msgspec.structs.replace(body, old_digest="", old_until=None)
    return _TOKENS.step(record, expire if over else retire, now, alone, actor="clock")


def _used(use: Use, record: Record | None, _: datetime, __: str) -> Decision[None]:
    if record is None or record.state not in WORKING:
        return Decision(None)
    body = read_body(record)
    if body.used_at is not None and body.used_at >= use.at:
        return Decision(None)
    changed = msgspec.structs.replace(body, used_at=use.at, used_from=use.address)
    return Decision(None, Commit(changes=(rewritten(record, body=msgspec.json.encode(changed)),)))


def _with_request(idempotency_key: IdempotencyKey | None, change: Change) -> Commit:
    """Return the commit with its request id.

    The stored answer does not contain the secret.
    """
    return Commit(changes=(change,), request=idempotency_key.answered(b"null") if idempotency_key else None)


def _present(name: str, record: Record | None) -> Record:
    if record is None:
        raise UnknownToken(f"There is no token {name} any more.", facts={"name": name})
    return record


def _taken(name: str) -> InvalidToken:
    return InvalidToken(
        f"There is an active token {name} already.",
        todo=f"Take another name, or give that one a new secret: interlock token rotate {name}",
        facts={"name": name},
    )


def _shown_once(name: str) -> SecretShownOnce:
    return SecretShownOnce(
        f"The token {name} was issued under this request id before; its secret is shown once and not kept.",
        todo=f"If the response was lost, create another secret: interlock token rotate {name} --overlap 0",
        facts={"name": name},
    )


def _check(name: str, queues: Sequence[str], lasts: timedelta | None) -> None:
    faults = []
    if not _NAME.fullmatch(name) or name.startswith("il_"):
        faults.append("a name has 1 to 64 letters, digits and _ . @ -, and does not look like a token")
    if any(not 1 <= len(queue) <= 64 or not queue.isprintable() for queue in queues):
        faults.append("the name of a queue has 1 to 64 printable characters")
    if lasts is not None and not timedelta(0) < lasts <= MAX_LIFETIME:
        faults.append(f"its lifetime must be more than 0 and at most {MAX_LIFETIME.days} days")
    if faults:
        raise InvalidToken(
            "The token cannot be created: " + "; ".join(faults) + ".",
            todo="Correct it and try again; nothing was stored.",
            facts={"name": name, "faults": faults},
        )
