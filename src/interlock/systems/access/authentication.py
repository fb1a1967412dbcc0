"""From the text of a token to whoever it stands for.

A record is believed for a few seconds, so that most requests ask the store nothing; a token that was
revoked elsewhere works for that long at most. What is not there is remembered as well, so that
somebody who tries tokens out does not reach the store with each of them. A secret that does not fit
what is remembered may be a new one, so the record is read again.

When a token was used last is remembered here and stored now and then, beside the requests.
"""

from __future__ import annotations

import hmac
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime, timedelta

from interlock.engine.clock import Clock
from interlock.store.records import Record
from interlock.systems.access.lifecycle import WORKING
from interlock.systems.access.principals import NotSignedIn, Principal, Role
from interlock.systems.access.secret import Secret, read_secret
from interlock.systems.access.tokens import TokenBody, Tokens, Use, read_body

BELIEVED_S = 3.0
USES_EVERY_S = 60.0
"""How often the last use of a token is stored at most, by each server."""
MAX_REMEMBERED = 10_000

ADVICE = "Send `Authorization: Bearer il_…`; make a token with: interlock token create NAME --role viewer"


class TokenCheck:
    """Lets in whoever has a token that works."""

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
        """Whoever the token stands for; raises `NotSignedIn`, which says the same for every reason."""
        # Also for a token that is not there the digest is worked out and compared.
        secret = read_secret(text) or Secret("", "")
        return await self.principal_behind(secret.id, secret.digest, address)

    async def principal_behind(self, token_id: str, digest: str, address: str = "") -> Principal:
        """Return the principal of a token by the digest of its secret, which is what a session keeps."""
        principal = await self.look(token_id, digest)
        self._uses[token_id] = self._monotonic(), address
        return principal

    async def look(self, token_id: str, digest: str) -> Principal:
        """Return the principal of a token without counting that as a use; raises `NotSignedIn`."""
        known = await self._look_up(token_id, digest) if token_id else _NOBODY
        if known.record is None or not known.fits(digest) or known.record.state not in WORKING:
            raise not_signed_in("The token is not known, or does not work any more.")
        until = known.until(digest)
        if until is not None and until <= await self._clock.now():
            raise not_signed_in("The token is not known, or does not work any more.")
        body = known.body
        return Principal(
            name=body.name,
            roles=(body.role,),
            queues=frozenset(body.queues),
            token_id=token_id,
            digest=digest,
        )

    def forget(self, token_id: str) -> None:
        """Read the record of a token again the next time: it was changed here."""
        self._known.pop(token_id, None)

    async def store_uses(self) -> int:
        """Store the last use of each token that was used; return how many were."""
        now, moment = self._monotonic(), await self._clock.now()
        due = {
            token_id: use
            for token_id, use in self._uses.items()
            if now - self._stored.get(token_id, float("-inf")) >= USES_EVERY_S
        }
        told = {
            token_id: Use(moment - timedelta(seconds=now - at), address)
            for token_id, (at, address) in due.items()
        }
        stored = await self._tokens.note_uses(told) if told else 0
        for token_id, use in due.items():
            self._stored[token_id] = now
            if self._uses.get(token_id) == use:
                del self._uses[token_id]
        self._stored = {each: at for each, at in self._stored.items() if now - at < USES_EVERY_S}
        return stored

    async def _look_up(self, token_id: str, digest: str) -> _Known:
        now = self._monotonic()
        known = self._known.get(token_id)
        if known is not None and now - known.at < self._believed_s and known.may_be(digest):
            return known
        record = await self._tokens.load(token_id)
        self._known[token_id] = known = _Known(now, record)
        self._known.move_to_end(token_id)
        if len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)
        return known


class _Known:
    """A token as it was read a moment ago."""

    __slots__ = ("at", "body", "record")

    def __init__(self, at: float, record: Record | None) -> None:
        self.at = at
        self.record = record
        self.body = read_body(record) if record is not None else _NO_BODY

    def fits(self, digest: str) -> bool:
        """Whether a secret is this token's, or was before it was rotated; compared in constant time."""
        old = self.body.old_digest
        return hmac.compare_digest(digest, self.body.digest) or (
            bool(old) and hmac.compare_digest(digest, old)
        )

    def may_be(self, digest: str) -> bool:
        """Whether reading the record again can change nothing: it is not there, or the secret fits."""
        return self.record is None or self.fits(digest)

    def until(self, digest: str) -> datetime | None:
        """Return when the secret ends to let in; the old one ends earlier."""
        if hmac.compare_digest(digest, self.body.digest):
            return self.body.expires_at
        return self.body.old_until


_NO_BODY = TokenBody(name="", role=Role.VIEWER, digest="0" * 64)
_NOBODY = _Known(0.0, None)


def not_signed_in(sentence: str) -> NotSignedIn:
    """Nobody, and what to do about it."""
    return NotSignedIn(sentence, todo=ADVICE)
