"""From the text of a token to whoever it stands for.

A record is believed for a few seconds, so that most requests ask the store nothing; a token that was
revoked elsewhere works for that long at most. What is not there is remembered as well, so that
somebody who tries tokens out does not reach the store with each of them.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from interlock.engine.clock import Clock
from interlock.store.records import Record
from interlock.systems.access.lifecycle import ACTIVE
from interlock.systems.access.principals import NotSignedIn, Principal
from interlock.systems.access.secret import Secret, read_secret
from interlock.systems.access.tokens import Tokens, read_body

BELIEVED_S = 3.0
MAX_REMEMBERED = 10_000
_NOBODY = "0" * 64

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
        self._known: OrderedDict[str, tuple[float, Record | None]] = OrderedDict()

    async def principal_of(self, text: str) -> Principal:
        """Whoever the token stands for; raises `NotSignedIn`, which says the same for every reason."""
        secret = read_secret(text)
        record = await self._record(secret.id) if secret else None
        body = read_body(record) if record else None
        # Also for a token that is not there the digest is worked out and compared.
        fits = (secret or Secret("", "")).opens(body.digest if body else _NOBODY)
        if record is None or body is None or not fits or record.state != ACTIVE:
            raise not_signed_in("The token is not known, or does not work any more.")
        if body.expires_at is not None and body.expires_at <= await self._clock.now():
            raise not_signed_in("The token is not known, or does not work any more.")
        return Principal(
            name=body.name, roles=(body.role,), queues=frozenset(body.queues), token_id=record.id
        )

    async def _record(self, token_id: str) -> Record | None:
        now = self._monotonic()
        known = self._known.get(token_id)
        if known is not None and now - known[0] < self._believed_s:
            return known[1]
        record = await self._tokens.load(token_id)
        self._known[token_id] = now, record
        self._known.move_to_end(token_id)
        if len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)
        return record


def not_signed_in(sentence: str) -> NotSignedIn:
    """Nobody, and what to do about it."""
    return NotSignedIn(sentence, todo=ADVICE)
