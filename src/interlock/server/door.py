"""Whether a request without a token is let in.

On an address that only this machine can reach no token is needed until there is one. A server asks the
store again every few seconds, and follows the journal, so a token that another process creates counts as
well. A door that has closed stays closed until the server is started again, also when the last token is
revoked: nobody gets in by the failure or the removal of what keeps them out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from weakref import WeakValueDictionary

from interlock.errors import InvalidSettings
from interlock.server.settings import ServerSettings, is_loopback
from interlock.store.records import Entry
from interlock.systems.access.authentication import BELIEVED_S
from interlock.systems.access.lifecycle import TOKEN
from interlock.systems.access.principals import Principal
from interlock.systems.access.sessions import Sessions
from interlock.systems.access.tokens import Tokens


class Door:
    """Answers whether a request without a token may pass."""

    def __init__(
        self,
        tokens: Tokens,
        *,
        closed: bool,
        closes: bool,
        believed_s: float = BELIEVED_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.closed = closed
        self.closes = closes
        """The first token closes it."""
        self.believed_s = believed_s
        self.over = asyncio.Event()
        """Set when it closes or the server ends: streams that were opened without a token end then."""
        self.tokens = tokens
        self._monotonic = monotonic
        self._asked_at = monotonic()
        self._asking = asyncio.Lock()

    async def is_open(self) -> bool:
        """Return whether no token is needed; raise when the store cannot say so."""
        if self.closed or not self.closes:
            return not self.closed
        if self._is_stale:
            async with self._asking:
                await self._ask()
        return not self.closed

    def close(self) -> None:
        """Require a token from now on."""
        self.closed = True
        self.over.set()

    def follow(self, entries: Sequence[Entry], gap: bool) -> None:
        """Read in the journal that a token was created."""
        if not self.closes or self.closed:
            return
        if gap:
            self._asked_at = float("-inf")
        if any(entry.kind == TOKEN.name and entry.version == 1 for entry in entries):
            self.close()

    @property
    def _is_stale(self) -> bool:
        return self._monotonic() - self._asked_at >= self.believed_s

    async def _ask(self) -> None:
        if self.closed or not self._is_stale:
            return  # another request has asked meanwhile
        asked_at = self._monotonic()
        if await self.tokens.any():
            self.close()
        self._asked_at = asked_at


class Endings:
    """Ends the streams and long polls of tokens and sessions that are over.

    A request is checked when it comes; a stream may last for days after that. So every few seconds each token
    and session with open streams is checked again: once, however many streams it has.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._events: WeakValueDictionary[Principal, asyncio.Event] = WeakValueDictionary()
        self._closed = False

    def of(self, principal: Principal) -> asyncio.Event:
        """Return what is set when a principal is let in no more; the caller keeps it while it waits."""
        event = self._events.get(principal)
        if event is None:
            event = self._events[principal] = asyncio.Event()
            if self._closed:
                event.set()
        return event

    def __len__(self) -> int:
        """Return how many tokens and sessions have streams or long polls open."""
        return len(self._events)

    async def round(self) -> int:
        """Check all of them; return how many have ended."""
        ended = 0
        for principal, event in list(self._events.items()):
            if not event.is_set() and not await self._sessions.is_still(principal):
                event.set()
                ended += 1
        return ended

    def close(self) -> None:
        """End all streams, because the server ends."""
        self._closed = True
        for event in list(self._events.values()):
            event.set()


async def door_for(settings: ServerSettings, tokens: Tokens) -> Door:
    """Return the door of a server; raise where it would let in whoever reaches a proxy."""
    if settings.insecure or settings.tokens_required is False:
        return Door(tokens, closed=False, closes=False)
    if settings.tokens_required or not settings.loopback or await tokens.any():
        return Door(tokens, closed=True, closes=False)
    foreign = [name for name in settings.allowed_hosts if not is_loopback(name)]
    if foreign:
        raise InvalidSettings(
            f"--allow-host {foreign[0]} is for requests from elsewhere, and there is no token in the store, "
            "so whoever reaches the server by that name could do everything.",
            todo="Create a token first (interlock token create NAME --role admin), or pass --token-required; "
            "to let everybody in without a token, pass --insecure.",
            facts={"allowed_hosts": foreign},
        )
    return Door(tokens, closed=False, closes=True)
