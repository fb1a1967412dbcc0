"""Jobs that are alike, given out together: one is decided about, and the others become the same. Pure.

Who submits a thousand jobs of one kind has made a thousand records that differ in their names and their
inputs only. What becomes of a job that is given out depends on neither, nor on the secret of its lease: so
these three are cut out, one job with holes in it is decided about, and the answer holds for all whose
records are the same around the holes, byte for byte. Jobs of another make are decided about one by one.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from interlock.store.records import Change, Record
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.body import decode_body, encode_body
from interlock.systems.orchestrator.dispatching import Claiming, Offer, granted, next_attempt, offer_of
from interlock.systems.orchestrator.stencils import (
    DIGEST,
    INPUT,
    JOB_ID,
    Pattern,
    Stencil,
    is_marked,
    standing_like,
    stands_like,
    stencil_of,
)
from interlock.systems.orchestrator.tokens import Token, token_for
from interlock.wire.runner import Grant

FEW = 4
"""Of fewer jobs than these it does not pay to find out whether they are alike."""
MOST_MAKES = 4
"""How many makes of jobs are known at once."""
PATIENCE = 16
"""After so many more misses than hits nobody looks for twins any more: where each is different that costs."""


def shares_of(
    claimings: Sequence[Claiming], records: Sequence[Record], now: datetime
) -> list[tuple[int, Offer]]:
    """Jobs for several runners, each with its place: the first is given all it wants, then the next."""
    shares: list[tuple[int, Offer]] = []
    place, left = 0, claimings[0].request.limit
    twins = _Twins(claimings[0], now, len(records))
    for record in records:
        while not left:
            place += 1
            left = claimings[place].request.limit
            twins = _Twins(claimings[place], now, min(left, len(records)))
        offer = twins.offer(record)
        if offer is not None:
            shares.append((place, offer))
            left -= offer.grant is not None
    return shares


class _Twins:
    """Gives jobs to one runner; of those that are alike, the first has the decision."""

    __slots__ = ("_claiming", "_looks", "_makes", "_now", "_patience")

    def __init__(self, claiming: Claiming, now: datetime, number: int) -> None:
        self._claiming = claiming
        self._now = now
        self._makes: list[_Make] = []
        self._looks = MOST_MAKES
        self._patience = PATIENCE if number >= FEW else 0

    def offer(self, record: Record) -> Offer | None:
        """One attempt of this job; None when it has none."""
        offer = self._like_another(record) if self._patience else None
        return offer or offer_of(self._claiming, record, self._now)

    def _like_another(self, record: Record) -> Offer | None:
        for make in self._makes:
            given = make.input_of(record)
            if given is not None:
                self._patience += 1
                return make.offer(record, given)
        self._patience -= 1
        if self._looks:
            self._looks -= 1
            found = _make_of(self._claiming, record, self._now)
            if found is not None:
                self._makes.append(found)
                return self._like_another(record)
        return None


class _Make:
    """Jobs that are the same but for name, input and secret; and what becomes of them."""

    __slots__ = ("_change", "_claiming", "_grant", "_like", "_look", "_stencil", "_token")

    def __init__(
        self,
        claiming: Claiming,
        like: Record,
        look: Stencil,
        stencil: Stencil,
        change: Change,
        grant: Grant,
        token: Token,
    ) -> None:
        self._claiming = claiming
        self._like = like
        self._look = look
        """How they are before, with a hole for the input; the other one is how they are after."""
        self._stencil = stencil
        self._change, self._grant, self._token = change, grant, token

    def input_of(self, record: Record) -> bytes | None:
        """The input of a job of this make; None for another one."""
        return self._look.found_in(record.body) if stands_like(record, self._like) else None

    def offer(self, record: Record, given: bytes) -> Offer | None:
        """What becomes of it; None where that would be too large."""
        token = token_for(self._claiming.seed, record.id, self._token.shard, self._token.index)
        body = self._stencil.filled(given, token.digest.encode())
        if len(body) > self._claiming.max_body_bytes:
            return None
        return Offer(
            replace(self._grant, token=str(token), job_id=record.id, input=msgspec.Raw(given)),
            replace(self._change, id=record.id, body=body, expected_at=record.updated_at),
            record,
            None,
            token,
            (),
            Pattern(self._stencil, given),
        )


def _make_of(claiming: Claiming, record: Record, now: datetime) -> _Make | None:
    """What this job and all that are like it become; None where that depends on who it is."""
    body = decode_body(record.body)
    given, body.input = body.input, INPUT
    marked = encode_body(body)
    look = stencil_of(marked, INPUT)
    if look is None or look.filled(given) != record.body:
        return None
    nobody = standing_like(record, marked, now)
    draft = JobAggregate.of(nobody, now, claiming.settings, body)
    one = next_attempt(draft)
    if one is None:
        return None
    token = Token(JOB_ID, one.shard, one.index, "", DIGEST)
    offer = granted(replace(claiming, max_body_bytes=sys.maxsize), draft, one, token, nobody)
    if offer.grant is None or offer.words:
        return None
    stencil = stencil_of(offer.change.body, INPUT, DIGEST.encode())
    change = replace(offer.change, id="", body=b"")
    grant = replace(offer.grant, token="", job_id="", input=msgspec.Raw(b"null"))
    if stencil is None or is_marked((change, grant)):
        return None
    return _Make(claiming, record, look, stencil, change, grant, token)
