"""Claim records that are ready or due, and commit the decisions about them.

Alone. Mostly there is one claimer at a time. It holds no lock while it decides: it reads ready records (one
round trip), decides, and writes the decision (another), each change compared by version as always. If another
writer has come between, nothing is written, and it continues in company.

Foreseen. A busy claimer gets records of the same shape again and again, and knows its decision before it
reads them. So it sends the decision with the read: if all records are as foreseen, they are written by the
same statement, in one round trip.

In company. Two claimers that read at the same time see the same records, and one of the decisions would be
wasted. So a claimer that has met another, or has a claim under way already, locks the records that it reads,
in one transaction from the read to the commit, skipping those that others hold. After a while it tries alone
again.

Why: decisions 0144 and 0378.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from time import monotonic
from typing import Any, TypeAlias

import asyncpg

from interlock.store.contract import Decide
from interlock.store.postgres.commits import CommitWriter, guard_of
from interlock.store.postgres.connections import PostgresPool, Session
from interlock.store.postgres.failures import Again
from interlock.store.postgres.notifier import PostgresNotifier
from interlock.store.postgres.queries import query as statement
from interlock.store.postgres.rows import foreseen_records_of, ready_records_of, record_of
from interlock.store.ranking import HANDLER_MARK, lane_of, lane_parts_of
from interlock.store.records import Batch, Claim, Commit, Committed, Foresight, Outcome, Record, Work

_PROMOTED_AT_ONCE = 1_000
_FURTHER = 8
"""Factor by which a claimer reads further if others hold the heads of the lanes."""
_FEW_LANES = 32
"""Up to this many lanes are looked up one by one; with more, lanes with ready records are searched."""
IndexPlace: TypeAlias = tuple[int, str]
"""Rank and id of the last claimed record."""
START: IndexPlace = (-(2**63), "")
MANY_TAKEN = 1_000
"""A claimer that has claimed fewer skips their index entries quickly."""
LOOKS, LOOK_AGAIN_S = 20, 0.1
"""After this many reads, or seconds, a claimer reads from the start again."""
_CLAIMS = 64
"""Number of different claimers that are remembered."""
_SHORTEST_CAUTION, _LONGEST_CAUTION = 16, 1_024


def _claimer_terms(claim: Claim) -> tuple[list[str] | None, list[str], list[str]]:
    """Return the lanes of a claimer if they are few, its queues and labels.

    The labels include the marks of its handlers.
    """
    queues, handlers = list(dict.fromkeys(claim.queues)), claim.handlers
    if handlers is None:
        return None, queues, [*claim.labels, HANDLER_MARK]
    if not claim.labels and len(queues) * (1 + len(handlers)) <= _FEW_LANES:
        return [lane_of(queue, (), handler) for queue in queues for handler in ("", *handlers)], queues, []
    return None, queues, list(lane_parts_of(claim.labels, handlers))


class OtherClaimers:
    """Other active claimers, as far as this store has noticed them."""

    def __init__(self) -> None:
        self._under_way = 0
        self._careful = 0
        """Number of claims for which it assumes others."""
        self._length = _SHORTEST_CAUTION

    @contextmanager
    def claim(self) -> Iterator[bool]:
        """Count a claim under way; yield whether it may assume to be alone."""
        alone = not self._under_way and not self._careful
        self._under_way += 1
        self._careful = max(0, self._careful - 1)
        try:
            yield alone
        finally:
            self._under_way -= 1

    def met(self) -> None:
        """Assume other claimers after a conflict, for twice as long each time."""
        self._careful = self._length
        self._length = min(2 * self._length, _LONGEST_CAUTION)

    def met_no_conflict(self) -> None:
        """Record a claim without a conflict."""
        self._length = _SHORTEST_CAUTION


class ClaimStarts:
    """The rank from which claims read.

    Index entries of claimed records stay until they are vacuumed, and a read from the start passes all of
    them. So a claimer that has claimed many starts where its last claim ended. It reads from the start again
    when it finds fewer than requested, and periodically: a record that ranks before the last claimed one
    waits for that, at most `LOOK_AGAIN_S`.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], _FirstClaims] = {}

    def of(self, claim: Claim) -> IndexPlace:
        """Return the place after which the next read starts."""
        known = self._first_claims_of(claim)
        if known.looks >= LOOKS or monotonic() >= known.looked_at + LOOK_AGAIN_S:
            known.place = START
        if known.place == START:
            known.looks, known.looked_at = 0, monotonic()
        known.looks += 1
        return known.place

    def is_enough(self, claim: Claim, rows: Sequence[asyncpg.Record]) -> bool:
        """Record the rows found; return False if a read from the start is needed."""
        known = self._first_claims_of(claim)
        if len(rows) < claim.limit:
            from_start, known.place = known.place == START, START
            return from_start
        known.taken += len(rows)
        if known.taken >= MANY_TAKEN:
            known.place = rows[-1]["rank"], rows[-1]["id"]
        return True

    def _first_claims_of(self, claim: Claim) -> _FirstClaims:
        claimer = claim.kind, claim.queues, claim.labels, claim.handlers
        known = self._known.get(claimer)
        if known is None:
            if len(self._known) >= _CLAIMS:
                self._known.clear()
            known = self._known[claimer] = _FirstClaims()
        return known


class _FirstClaims:
    """The start of the claims of one claimer."""

    __slots__ = ("looked_at", "looks", "place", "taken")

    def __init__(self) -> None:
        self.place = START
        self.taken = 0
        self.looks = 0
        """Reads since the last one from the start, which was at `looked_at`."""
        self.looked_at = 0.0


class Claims:
    """Claims and sweeps of one store."""

    def __init__(self, connections: PostgresPool, writing: CommitWriter, notifier: PostgresNotifier) -> None:
        self._connections = connections
        self._writing = writing
        self._notifier = notifier
        self._schema = connections.target.schema
        self._other_claimers = OtherClaimers()
        self._starts = ClaimStarts()

    async def claim(self, claim: Claim, decide: Decide) -> list[Outcome]:
        """Claim records that are ready for this claimer."""
        last: tuple[datetime, bool] | None = None

        def noted(records: Sequence[Record], now: datetime) -> Sequence[Work]:
            nonlocal last
            commits = decide(records, now)
            last = now, bool(commits)
            return commits

        async def work(session: Session) -> list[Outcome]:
            outcomes: list[Outcome] | None = None
            if claim.foresight is not None and session.attempt == 1:
                outcomes = await self._claim_foreseen(session, claim, claim.foresight, noted, alone=alone)
            if outcomes is None and alone and session.attempt == 1:
                outcomes = await self._claim_alone(session, claim, noted)
            if outcomes is not None:
                return outcomes
            return self._notifier.notify(await self._claim_with_others(session, claim, noted))

        with self._other_claimers.claim() as alone:
            outcomes = await self._connections.run("Claiming", work)
        if not outcomes and last is not None and last[1]:
            # Others claimed all before the write: the last call of `decide` counts, so it is called again.
            decide([], last[0])
        return outcomes

    async def due(self, kinds: Sequence[str], limit: int, decide: Decide) -> list[Outcome]:
        """Handle records past their deadline, next to other sweepers.

        Sweepers run at the same time, so locked records are skipped.
        """

        async def work(session: Session) -> list[Outcome]:
            await session.begin()
            *rows, last = await self._take(session, "take_due", (list(kinds),), limit)
            return await self._decided(session, [record_of(row, 3) for row in rows], last["moment"], decide)

        return await self._connections.run("Sweeping passed deadlines", work)

    async def _claim_foreseen(
        self, session: Session, claim: Claim, foresight: Foresight, decide: Decide, *, alone: bool
    ) -> list[Outcome] | None:
        """Read and write in one statement, if the records are as foreseen.

        It returns None if something else was found, or if more has to be read to know that nothing is ready.
        """
        writing = self._writing
        after = self._starts.of(claim)
        arguments = (*after, *guard_of(claim), *writing.foreseen(foresight))
        rows = await session.fetch(
            statement("claim_foreseen", self._schema),
            *(alone, writing.seen, claim.kind, *_claimer_terms(claim), claim.limit, *arguments),
            writes=True,
        )
        at: datetime | None = rows[0]["at"]
        if at is None:
            if rows[0]["foreseen"] and alone:
                self._other_claimers.met()
            nothing = rows[0]["nothing"] and alone and self._starts.is_enough(claim, ())
            return [] if nothing else None
        if alone:
            self._other_claimers.met_no_conflict()
        self._starts.is_enough(claim, rows)
        writing.saw(at)
        records = foreseen_records_of(rows, foresight.like)
        decisions = decide(records, foresight.now)
        ids = tuple([record.id for record in records])
        made = [(one.change, one.ids) for one in decisions if isinstance(one, Batch)]
        assert made == [(foresight.change, ids)], "the decision is not the one that was foreseen"
        return self._notifier.notify([Committed(at)] * len(records))

    async def _claim_alone(self, session: Session, claim: Claim, decide: Decide) -> list[Outcome] | None:
        """Read, decide, write; return None if that is not sufficient."""
        writing = self._writing
        sql = statement("peek_ready", self._schema)
        while True:
            after = self._starts.of(claim)
            rows = await session.fetch(
                sql, writing.seen, claim.kind, *_claimer_terms(claim), claim.limit, *after, *guard_of(claim)
            )
            last = rows.pop()
            if self._starts.is_enough(claim, rows):
                break
        if not last["allowed"]:
            return []
        if last["delayed"]:
            return None
        now = writing.saw(last["moment"])
        if not rows:
            return []
        records = ready_records_of(rows, claim.kind)
        commits = decide(records, now)
        writing.check(commits)
        parts = writing.parts(commits, records)
        if not parts:
            return []
        notifying = self._notifier.let_notify(parts)
        try:
            outcomes = await writing.write_all(session, parts, claim.guard)
        except Again:
            self._other_claimers.met()
            raise
        self._other_claimers.met_no_conflict()
        return self._notifier.notify(outcomes, notifying)

    async def _claim_with_others(self, session: Session, claim: Claim, decide: Decide) -> list[Outcome]:
        """Lock the heads of the lanes of this claimer that are not locked."""
        await session.begin()
        rows = await self._take_ready(session, claim)
        while rows[-1]["delayed"]:
            # Delayed records that have become ready are moved into their lanes first, visible to others too.
            await session.rollback()
            promoted = await self._promote(session, claim.kind)
            await session.begin()
            rows = await self._take_ready(session, claim)
            if promoted < _PROMOTED_AT_ONCE:
                break
        *rows, last = rows
        records = ready_records_of(rows if last["allowed"] else (), claim.kind)
        return await self._decided(session, records, last["moment"], decide)

    async def _take_ready(self, session: Session, claim: Claim) -> list[asyncpg.Record]:
        while True:
            after = self._starts.of(claim)
            terms = claim.kind, *_claimer_terms(claim)
            rows = await self._take(session, "take_ready", terms, claim.limit, *after, *guard_of(claim))
            if self._starts.is_enough(claim, rows[:-1]):
                return rows

    async def _take(
        self, session: Session, what: str, arguments: tuple[Any, ...], limit: int, *more: object
    ) -> list[asyncpg.Record]:
        """Lock up to `limit` records; the last row has the store's time.

        If other claimers hold the first records, it reads further.
        """
        sql = statement(what, self._schema)
        reach = limit * 2
        while True:
            rows = await session.within(sql, self._writing.seen, *arguments, limit, reach, *more)
            if len(rows) > limit or not rows[-1]["cut"]:
                return rows
            reach *= _FURTHER

    async def _promote(self, session: Session, kind: str) -> int:
        sql = statement("promote", self._schema)
        [[number]] = await session.fetch(sql, self._writing.seen, kind, _PROMOTED_AT_ONCE, writes=True)
        return int(number)

    async def _decided(
        self, session: Session, records: Sequence[Record], now: datetime, decide: Decide
    ) -> list[Outcome]:
        """Commit the decisions about locked records, in the same transaction."""
        writing = self._writing
        writing.saw(now)
        if not records:
            await session.rollback()
            return []
        try:
            commits = decide(records, now)
            writing.check(commits)
            # The state of locked records is known, so no conflict is possible; on a retry that is not
            # assumed.
            judging = session.attempt > 1 or not self._foresees(commits, records)
            parts = [(part, writing.call(part, judging=judging)) for part in writing.parts(commits, records)]
        except Exception:
            await session.rollback()
            raise
        outcomes: list[Outcome] = []
        for part, call in parts:
            outcomes += await writing.write_within(session, part, call)
        await session.commit()
        return outcomes

    def _foresees(self, work: Sequence[Work], records: Sequence[Record]) -> bool:
        """Return whether the commits change only these records, as foreseen.

        That is in the versions of the records, and as their tables allow.
        """
        held = {(record.kind, record.id): record for record in records}
        moves: set[tuple[str, str, str]] = set()
        for item in work:
            if item.not_after is not None or (isinstance(item, Commit) and item.request is not None):
                return False
            changes = [item.change] if isinstance(item, Batch) else item.changes
            for change in changes:
                for name in item.ids if isinstance(item, Batch) else (change.id,):
                    record = held.get((change.kind, name))
                    if record is None or record.version != change.expected:
                        return False
                    moves.add((change.kind, record.state, change.state))
        catalogue = self._writing.catalogue
        return all(catalogue[kind].allows(source, target) for kind, source, target in moves)
