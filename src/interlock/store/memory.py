"""A store in memory: a real one, under the same contract, and deterministic.

Simulated worlds and users' tests run on it, and it is the plainest description of the other stores. Its data
do not survive the process.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from interlock.errors import StoreUnavailable
from interlock.store.catalogue import Catalogue
from interlock.store.contract import Capabilities, Decide, StoreStatus, Wake
from interlock.store.cursors import read_cursor, read_number, write_cursor
from interlock.store.ranking import lane_of, lanes_for, microseconds, rank_of
from interlock.store.records import (
    Change,
    Claim,
    Commit,
    Committed,
    Conflict,
    Count,
    Entry,
    Feed,
    Illegal,
    Key,
    Note,
    Outcome,
    Page,
    Pruned,
    Query,
    Record,
    Recorded,
    Repeated,
    Request,
    RequestReused,
    TooLate,
    Work,
    one_by_one,
    record_after,
)
from interlock.store.validation import (
    check_back,
    check_claim,
    check_commits,
    check_limit,
    check_prune,
    check_prune_by_queue,
    check_query,
    known_kind,
)

ReadClock = Callable[[], datetime]


class MemoryStore:
    """The contract on dictionaries. `clock` is the store's clock; a test may pass one that jumps."""

    def __init__(
        self, catalogue: Catalogue, *, clock: ReadClock = lambda: datetime.now(UTC), yields: bool = False
    ) -> None:
        """Make an empty store; with `yields` other tasks run at each commit.

        A connection to a database lets other tasks run as well.
        """
        self.capabilities: Capabilities = Capabilities(
            durable=False,
            durability="in memory: lost when the process ends",
            shared=False,
            enforces_tables=True,
        )
        self._catalogue = catalogue
        self._clock = clock
        self._yields = yields
        self._latest_now = datetime.min.replace(tzinfo=UTC)
        self._call_at: datetime | None = None
        """All commits of one call have the same time, as in one transaction of a database."""
        self._records: dict[Key, Record] = {}
        self._handlers: dict[Key, str] = {}
        self._ready: dict[Key, Record] = {}
        """Records with a ready time."""
        self._timed: dict[Key, Record] = {}
        """Records with a deadline."""
        self._journal: list[Entry] = []
        self._pruned_up_to = 0
        self._sequence = 0
        self._epoch = 1
        self._requests: dict[str, Recorded] = {}
        self._wakes: dict[object, Wake] = {}
        self._closed = False

    async def open(self) -> None:
        """Open the store."""
        self._closed = False

    async def learn(self, kinds: Catalogue) -> None:
        """Add kinds to the catalogue."""
        self._catalogue = {**self._catalogue, **kinds}

    async def close(self) -> None:
        """Close the store; later calls are refused."""
        self._closed = True
        self._wakes.clear()

    async def now(self) -> datetime:
        """Return the clock, which never decreases."""
        self._check_open()
        return self._now()

    async def epoch(self) -> int:
        """Return the epoch: memory loses everything or nothing."""
        self._check_open()
        return self._epoch

    async def raise_epoch(self, above: int = 0) -> int:
        """Start the next epoch."""
        self._check_open()
        self._epoch = max(self._epoch, above) + 1
        return self._epoch

    async def load(self, keys: Sequence[Key]) -> list[Record | None]:
        """Return the records by key."""
        self._check_open()
        for key in keys:
            known_kind(self._catalogue, key.kind)
        return [self._records.get(key) for key in keys]

    async def find(self, query: Query) -> Page:
        """Return a page of matching records."""
        self._check_open()
        within = query.within if query.looks_through else None
        looked_at = self._matching(query if within is None else _anywhere(query))
        if query.cursor:
            after, newest = read_cursor(query.cursor), query.newest_first
            looked_at = [r for r in looked_at if (_place(r) < after if newest else _place(r) > after)]
        found = [record for record in looked_at[:within] if _matches(record, query)]
        page = found[: query.limit]
        if len(found) > query.limit:
            return Page(tuple(page), write_cursor(*_place(page[-1])))
        cut = within is not None and len(looked_at) > within
        return Page(tuple(page), write_cursor(*_place(looked_at[within - 1])) if cut and within else "")

    async def count(self, query: Query, *, cap: int = 10_000, within: int | None = None) -> Count:
        """Count matches, up to the cap, and within a number of examined records."""
        self._check_open()
        found = self._matching(query)
        if within is None or not query.looks_through:
            return Count(min(len(found), cap), capped=len(found) > cap)
        anywhere = self._matching(_anywhere(query))
        looked_at = {record.id for record in anywhere[:within]}
        number = sum(record.id in looked_at for record in found)
        return Count(min(number, cap), capped=len(anywhere) > within or number > cap)

    async def commit(self, commits: Sequence[Work]) -> list[Outcome]:
        """Apply the commits one after the other."""
        if self._yields:
            await asyncio.sleep(0)
        return self._commit_now(commits)

    def _commit_now(self, commits: Sequence[Work]) -> list[Outcome]:
        self._check_open()
        check_commits(self._catalogue, commits, self.capabilities.max_body_bytes)
        self._call_at = self._now()
        try:
            outcomes = [self._commit_one(commit) for commit in one_by_one(commits)]
        finally:
            self._call_at = None
        self._wake(outcomes)
        return outcomes

    async def claim(self, claim: Claim, decide: Decide) -> list[Outcome]:
        """Claim ready records; with one thread no other claimer can interfere."""
        self._check_open()
        check_claim(self._catalogue, claim)
        now = self._now()
        if claim.guard is not None:
            guard = self._records.get(claim.guard.key)
            if guard is None or guard.state not in claim.guard.states:
                return []
        ready = [
            (lane_of(record.queue or "", record.labels, self._handlers.get(key, "")), record)
            for key, record in self._ready.items()
            if record.kind == claim.kind and record.ready_at is not None and record.ready_at <= now
        ]
        mine = set(lanes_for({lane for lane, _ in ready}, claim))
        taken = [record for lane, record in ready if lane in mine]
        taken.sort(key=_rank)
        return await self._decided(taken[: claim.limit], now, decide)

    async def due(self, kinds: Sequence[str], limit: int, decide: Decide) -> list[Outcome]:
        """Handle records past their deadline."""
        self._check_open()
        check_limit(limit)
        for kind in kinds:
            known_kind(self._catalogue, kind)
        now = self._now()
        overdue = [
            (record.deadline_at, record.id, record)
            for record in self._timed.values()
            if record.kind in kinds and record.deadline_at is not None and record.deadline_at <= now
        ]
        overdue.sort(key=lambda found: found[:2])
        return await self._decided([record for _, _, record in overdue[:limit]], now, decide)

    async def recall(self, request_id: str) -> Recorded | None:
        """Return the recorded answer, unless it has expired."""
        self._check_open()
        recorded = self._requests.get(request_id)
        return recorded if recorded is not None and recorded.expires_at > self._now() else None

    async def feed(self, after: str = "", *, limit: int = 1_000) -> Feed:
        """Return entries after a cursor; the list is in the order of the commits."""
        self._check_open()
        check_limit(limit)
        sequence = _sequence_of(after)
        start = bisect_right(self._journal, sequence, key=lambda entry: int(entry.cursor))
        entries = tuple(self._journal[start : start + limit])
        cursor = entries[-1].cursor if entries else str(max(sequence, self._pruned_up_to))
        return Feed(entries, cursor, gap=sequence < self._pruned_up_to)

    async def latest(self, *, back: int = 0) -> str:
        """Return the cursor of the end of the journal, or of an earlier place."""
        self._check_open()
        check_back(back)
        return str(max(0, self._sequence - back))

    async def history(self, key: Key, *, after_version: int = 0, limit: int = 1_000) -> Feed:
        """Return the entries of one record."""
        self._check_open()
        check_limit(limit)
        known_kind(self._catalogue, key.kind)
        found = [
            e for e in self._journal if (e.kind, e.id) == (key.kind, key.id) and e.version > after_version
        ]
        entries = tuple(found[:limit])
        return Feed(entries, entries[-1].cursor if entries else "")

    def subscribe(self, wake: Wake) -> Callable[[], None]:
        """Subscribe; callbacks are called right after a commit."""
        token = object()
        self._wakes[token] = wake

        def stop() -> None:
            self._wakes.pop(token, None)

        return stop

    async def prune(
        self, *, kind: str, states: Sequence[str], older_than: timedelta, limit: int = 1_000
    ) -> Pruned:
        """Remove records that ended long ago, and expired requests."""
        self._check_open()
        check_limit(limit)
        check_prune(self._catalogue, kind, states, older_than)
        now = self._now()
        old = [
            record.key
            for record in self._records.values()
            if record.kind == kind and record.state in states and record.updated_at <= now - older_than
        ]
        gone = set(old[:limit])
        entries = self._forget(gone)
        expired = [name for name, recorded in self._requests.items() if recorded.expires_at <= now]
        for name in expired:
            del self._requests[name]
        return Pruned(len(gone), entries, len(expired), more=len(old) > limit)

    async def prune_by_queue(
        self,
        *,
        kind: str,
        state: str,
        older_than: timedelta | None,
        queues: Mapping[str, timedelta],
        cursor: str = "",
        limit: int = 1_000,
        within: int = 5_000,
    ) -> Pruned:
        """Remove records at the age of their queue, in the order of creation."""
        self._check_open()
        check_limit(limit)
        check_limit(within)
        check_prune_by_queue(self._catalogue, kind, state, older_than, queues)
        after = read_cursor(cursor) if cursor else None
        now = self._now()
        ended = [record for record in self._records.values() if (record.kind, record.state) == (kind, state)]
        left = sorted((one for one in ended if after is None or _place(one) > after), key=_place)
        gone: set[Key] = set()
        looked_at = 0
        for record in left[:within]:
            age = older_than if record.queue is None else queues.get(record.queue, older_than)
            if age is not None and record.updated_at <= now - age:
                if len(gone) == limit:
                    break
                gone.add(record.key)
            looked_at += 1
        entries = self._forget(gone)
        on = write_cursor(*_place(left[looked_at - 1])) if looked_at < len(left) else ""
        return Pruned(len(gone), entries, more=bool(on), cursor=on)

    def _forget(self, gone: set[Key]) -> int:
        """Remove records with their journal; return the number of its entries."""
        for key in gone:
            self._put(key, None)
        removed = [entry for entry in self._journal if Key(entry.kind, entry.id) in gone]
        self._journal = [entry for entry in self._journal if Key(entry.kind, entry.id) not in gone]
        self._pruned_up_to = max([self._pruned_up_to, *(int(entry.cursor) for entry in removed)])
        return len(removed)

    async def compact(self) -> int | None:
        """Return None: memory is freed at once."""
        return None

    async def status(self) -> StoreStatus:
        """Return the status."""
        self._check_open()
        records: dict[str, dict[str, int]] = {}
        for record in self._records.values():
            states = records.setdefault(record.kind, {})
            states[record.state] = states.get(record.state, 0) + 1
        return StoreStatus(
            url="memory:",
            server="this process",
            schema_version=1,
            wanted_version=1,
            records=records,
            entries=len(self._journal),
            oldest_entry_at=self._journal[0].at if self._journal else None,
            requests=len(self._requests),
        )

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("The store is closed.", todo="Open it again; nothing was written.")

    def _now(self) -> datetime:
        if self._call_at is not None:
            return self._call_at
        self._latest_now = max(self._latest_now, self._clock())
        return self._latest_now

    def _matching(self, query: Query) -> list[Record]:
        check_query(self._catalogue, query)
        found = [record for record in self._records.values() if _matches(record, query)]
        return sorted(found, key=_place, reverse=query.newest_first)

    async def _decided(self, taken: Sequence[Record], now: datetime, decide: Decide) -> list[Outcome]:
        return self._commit_now(decide(taken, now)) if taken else []

    def _commit_one(self, commit: Commit) -> Outcome:
        now = self._now()
        refusal = self._why_not(commit, now)
        if refusal is not None:
            return refusal
        for change in commit.changes:
            self._write(change, now)
        for refused in commit.refusals:
            record = self._records.get(Key(refused.kind, refused.id))
            self._note(refused.kind, refused.id, record.version if record else 0, refused.note, now)
        if commit.request is not None:
            self._requests[commit.request.id] = _recorded(commit.request, now)
        return Committed(now)

    def _why_not(self, commit: Commit, now: datetime) -> Outcome | None:
        if commit.request is not None and (found := self._requests.get(commit.request.id)):
            if found.expires_at > now and found.fingerprint == commit.request.fingerprint:
                return Repeated(found)
            if found.expires_at > now:
                return RequestReused(found, commit.request.fingerprint)
        if commit.not_after is not None and now > commit.not_after:
            return TooLate(commit.not_after, now)
        records = [self._records.get(Key(change.kind, change.id)) for change in commit.changes]
        for change, record in zip(commit.changes, records, strict=True):
            version = record.version if record else 0
            if version != change.expected or (record and change.expected_at not in (None, record.updated_at)):
                return Conflict(change.key, change.expected, version)
        for change, record in zip(commit.changes, records, strict=True):
            source = record.state if record else ""
            if not self._catalogue[change.kind].allows(source, change.state):
                return Illegal(change.key, source, change.state)
        return None

    def _write(self, change: Change, now: datetime) -> None:
        key = Key(change.kind, change.id)
        self._handlers[key] = change.handler
        self._put(key, record_after(change, self._records.get(key), now))
        if change.note is not None:
            self._note(change.kind, change.id, change.expected + 1, change.note, now)

    def _put(self, key: Key, record: Record | None) -> None:
        """Store or remove a record, and update the indexes."""
        if record is None:
            self._records.pop(key, None)
            self._handlers.pop(key, None)
        else:
            self._records[key] = record
        if record is not None and record.ready_at is not None:
            self._ready[key] = record
        else:
            self._ready.pop(key, None)
        if record is not None and record.deadline_at is not None:
            self._timed[key] = record
        else:
            self._timed.pop(key, None)

    def _note(self, kind: str, name: str, version: int, note: Note, now: datetime) -> None:
        self._sequence += 1
        self._journal.append(
            Entry(
                cursor=str(self._sequence),
                at=now,
                kind=kind,
                id=name,
                version=version,
                note=note,
            )
        )

    def _wake(self, outcomes: Iterable[Outcome]) -> None:
        if any(isinstance(outcome, Committed) for outcome in outcomes):
            for wake in list(self._wakes.values()):
                wake()


def _anywhere(query: Query) -> Query:
    return msgspec.structs.replace(query, queue=None, labels=())


def _matches(record: Record, query: Query) -> bool:
    return (
        record.kind == query.kind
        and (not query.states or record.state in query.states)
        and (query.parent is None or record.parent == query.parent)
        and (query.queue is None or record.queue == query.queue)
        and set(query.labels) <= set(record.labels)
        and (query.since is None or record.created_at >= query.since)
        and (query.until is None or record.created_at < query.until)
    )


def _place(record: Record) -> tuple[int, str]:
    """Return the place of a record in a list: by creation, then by id."""
    return microseconds(record.created_at), record.id


def _rank(record: Record) -> tuple[int, str]:
    assert record.ready_at is not None
    return rank_of(record.ready_at, record.priority), record.id


def _recorded(request: Request, now: datetime) -> Recorded:
    return Recorded(
        id=request.id,
        endpoint=request.endpoint,
        fingerprint=request.fingerprint,
        answer=request.answer,
        created_at=now,
        expires_at=now + timedelta(seconds=request.ttl_s),
    )


def _sequence_of(cursor: str) -> int:
    return read_number(cursor, cursor) if cursor else 0
