"""A lease as a credential: the job itself reports on its attempt, without a token of its runner.

A runner may hand the lease of an attempt to whatever executes it, in a container of its own for
example. It works for as long as the lease lives, and only where a route is declared `by_claim`.
"""

from __future__ import annotations

from interlock.engine.clock import Clock
from interlock.lifecycles import lease
from interlock.lifecycles.job import JOB
from interlock.store.contract import Store
from interlock.store.records import Key
from interlock.systems.access.authentication import not_signed_in
from interlock.systems.access.principals import NotAllowed, Principal
from interlock.systems.orchestrator.body import decode_body
from interlock.systems.orchestrator.tokens import Token, is_the_same, read_token


class ClaimCheck:
    """Lets in whoever shows a live lease."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def principal_of(self, text: str) -> Principal | None:
        """Return whom a lease stands for; None for what has not the shape of one."""
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
    """Return the lease that a request is about; with a lease as credential it is that one."""
    if not principal.claim:
        return named
    if named and not is_the_same(named, principal.claim):
        raise NotAllowed(
            "A lease allows reports on its own attempt, and on no other.",
            todo="Send the lease of this attempt, or none.",
        )
    return principal.claim


def only_for_tokens(principal: Principal, what: str) -> NotAllowed:
    """Return why a lease is not enough."""
    return NotAllowed(
        f"A lease allows logs, artifacts, caches and children of its own attempt, and not {what}.",
        todo="Use an access token with the role that this needs.",
        facts={"principal": principal.name},
    )


def _name(token: Token) -> str:
    return f"{token.job_id}.{token.shard}.{token.index}"
