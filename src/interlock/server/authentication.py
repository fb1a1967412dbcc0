"""Credentials of a request other than an access token: a session cookie, a lease, or none.

Cookies: browsers send the cookies of a host to every port of it. So the name ends with the port of the
address that the browser has opened: two servers on one host do not sign each other out, and servers behind
one proxy, which are opened at one address, share their cookie. Under TLS its name begins with `__Host-`:
browsers accept that only from this very host and over an encrypted connection, so a sibling domain or a
plain connection cannot plant a session.

Leases: a runner may hand the lease of an attempt to the process that executes it, in a container for
example. It is valid while the lease lives, and only for routes that are declared `by_claim`.

None: on an address that only this machine can reach no token is needed until there is one. A server asks
the store again every few seconds, and follows the journal, so a token that another process creates counts
as well. Access without a token that has ended stays ended until the server is started again, also when the
last token is revoked: the failure or removal of a credential admits no one.

Why: decision 0357.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from weakref import WeakValueDictionary

from interlock.engine.clock import Clock
from interlock.errors import InvalidSettings, NotAllowed, NotSignedIn
from interlock.lifecycles import lease
from interlock.lifecycles.job import JOB
from interlock.server.settings import ServerSettings, is_loopback
from interlock.store.contract import Store
from interlock.store.records import Entry, Key
from interlock.systems.access.authentication import BELIEVED_S, Sessions, not_signed_in
from interlock.systems.access.principals import Principal
from interlock.systems.access.tokens import TOKEN, Tokens
from interlock.systems.orchestrator.body import decode_body
from interlock.systems.orchestrator.tokens import Token, is_the_same, read_token

NAME = "interlock_session"
PREFIX = "__Host-"
_PORT = re.compile(r":([0-9]+)\Z")


def session_of(headers: Mapping[str, str], *, tls: bool) -> str:
    """Return the secret of the session of a request, or an empty string.

    Cookies are read by hand: parsers of the standard library give up at the first cookie of another program
    that they do not like, and do not report a name that comes twice.
    """
    sent = headers.get("cookie", "")
    if NAME not in sent:
        return ""
    for encrypted in (True,) if tls else (True, False):
        own = name_of(headers, encrypted=encrypted)
        values = {value for found, value in _pairs(sent) if found == own}
        if len(values) > 1:
            raise NotSignedIn(
                "Two different sessions came with the request.",
                todo="Delete the cookies of this site in the browser, and sign in again.",
            )
        if values:
            return values.pop()
    return ""


def name_of(headers: Mapping[str, str], *, encrypted: bool) -> str:
    """Return the name of the cookie for the address in the browser."""
    port = _PORT.search(headers.get("host", ""))
    return f"{PREFIX if encrypted else ''}{NAME}{f'_{port[1]}' if port else ''}"


def is_encrypted(headers: Mapping[str, str], *, tls: bool) -> bool:
    """Return whether the browser reaches the server over TLS.

    A proxy may end the TLS connection.
    """
    return tls or headers.get("origin") == f"https://{headers.get('host', '')}"


def set_cookie(headers: Mapping[str, str], secret: str, lasts_s: int, *, encrypted: bool) -> str:
    """Return the header that stores a session, hidden from scripts."""
    name = name_of(headers, encrypted=encrypted)
    parts = [f"{name}={secret}", "Path=/", f"Max-Age={lasts_s}", "HttpOnly", "SameSite=Strict"]
    return "; ".join([*parts, "Secure"] if encrypted else parts)


def cleared_cookie(headers: Mapping[str, str], *, tls: bool) -> str:
    """Return the header that removes the session from a browser."""
    sent = {name for name, _ in _pairs(headers.get("cookie", ""))}
    encrypted = tls or name_of(headers, encrypted=True) in sent
    return set_cookie(headers, "", 0, encrypted=encrypted)


def _pairs(sent: str) -> list[tuple[str, str]]:
    """Return the names and values of all cookies."""
    parts = (part.strip().partition("=") for part in sent.split(";"))
    return [(name, value) for name, _, value in parts]


class ClaimCheck:
    """Authenticates requests with a live lease."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def principal_of(self, text: str) -> Principal | None:
        """Return the principal of a lease.

        Return None if the text does not have the format of one.
        """
        token = read_token(text)
        if token is None:
            return None
        (record,) = await self._store.load([Key(JOB.name, token.job_id)])
        for one in decode_body(record.body).attempts if record is not None else ():
            held = one.lease
            if held is None or (one.shard, one.index) != (token.shard, token.index):
                continue
            alive = held.state in lease.LIVE and held.data.expires_at > await self._clock.now()
            if token.opens(held.digest) and alive:
                queues = frozenset({record.queue or ""}) if record is not None else frozenset()
                return Principal(
                    name=held.data.runner_id, roles=(), queues=queues, token_id=_name(token), claim=text
                )
        raise not_signed_in("The lease is not known, or has ended.")


def lease_of(principal: Principal, named: str) -> str:
    """Return the lease of a request, or the one that is its credential."""
    if not principal.claim:
        return named
    if named and not is_the_same(named, principal.claim):
        raise NotAllowed(
            "A lease allows reports on its own attempt, and on no other.",
            todo="Send the lease of this attempt, or none.",
        )
    return principal.claim


def only_for_tokens(principal: Principal, what: str) -> NotAllowed:
    """Return the error of a route that does not accept a lease."""
    return NotAllowed(
        f"A lease allows logs, artifacts, caches and children of its own attempt, and not {what}.",
        todo="Use an access token with the role that this needs.",
        facts={"principal": principal.name},
    )


def _name(token: Token) -> str:
    return f"{token.job_id}.{token.shard}.{token.index}"


class Door:
    """Decides whether a request without a token is accepted."""

    def __init__(
        self,
        tokens: Tokens,
        *,
        closed: bool,
        closes: bool,
        believed_s: float = BELIEVED_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.closed: bool = closed
        self.closes = closes
        """Whether the first token closes it."""
        self.believed_s = believed_s
        self.over: asyncio.Event = asyncio.Event()
        """Set when it closes or the server ends: streams that were opened without a token end then."""
        self.tokens = tokens
        self._monotonic = monotonic
        self._checked_at = monotonic()
        self._checking = asyncio.Lock()

    @property
    def is_surely_open(self) -> bool:
        """Whether no token is needed, without a look at the store."""
        return not self.closed and not (self.closes and self._is_stale)

    async def is_open(self) -> bool:
        """Return whether no token is needed; raise if the store is unavailable."""
        if self.closed or not self.closes:
            return not self.closed
        if self._is_stale:
            async with self._checking:
                await self._refresh()
        return not self.closed

    def close(self) -> None:
        """Require a token from now on."""
        self.closed = True
        self.over.set()

    def follow(self, entries: Sequence[Entry], gap: bool) -> None:
        """Close when the journal shows that a token was created."""
        if not self.closes or self.closed:
            return
        if gap:
            self._checked_at = float("-inf")
        if any(entry.kind == TOKEN.name and entry.version == 1 for entry in entries):
            self.close()

    @property
    def _is_stale(self) -> bool:
        return self._monotonic() - self._checked_at >= self.believed_s

    async def _refresh(self) -> None:
        if self.closed or not self._is_stale:
            return  # another request has asked in the meantime
        checked_at = self._monotonic()
        if await self.tokens.any():
            self.close()
        self._checked_at = checked_at


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
        """Return the event that is set when a principal loses access.

        The caller keeps it while it waits.
        """
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
        """Check all principals; return how many have lost access."""
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
    """Return the door of a server.

    Raise if clients behind a proxy would need no token.
    """
    if settings.insecure or settings.tokens_required is False:
        return Door(tokens, closed=False, closes=False)
    if settings.tokens_required or not settings.loopback or await tokens.any():
        return Door(tokens, closed=True, closes=False)
    foreign = [name for name in settings.allowed_hosts if not is_loopback(name)]
    if foreign:
        raise InvalidSettings(
            f"--allow-host {foreign[0]} is for requests from elsewhere, and there is no token in the store, "
            "so any client that uses this name could do everything.",
            todo="Create a token first (interlock token create NAME --role admin), or pass --token-required; "
            "to serve without authentication, pass --insecure.",
            facts={"allowed_hosts": foreign},
        )
    return Door(tokens, closed=False, closes=True)
