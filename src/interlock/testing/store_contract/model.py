"""Any sequence of calls has the outcome that a naive reference implementation gives it."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from interlock.store.contract import Store
from interlock.store.records import (
    Batch,
    Change,
    Claim,
    Commit,
    Committed,
    Conflict,
    Count,
    Illegal,
    Key,
    Note,
    Outcome,
    Query,
    Record,
    Repeated,
    Request,
    RequestReused,
    TooLate,
    Work,
)
from interlock.testing.store_contract.builders import (
    CATALOGUE,
    MANY_HANDLERS,
    SENDING,
    each,
    made,
    move,
    request,
    take,
    whole_feed,
)

LEGAL = {
    "": {"packed", "sent", "delivered", "lost", "returned"},
    "packed": {"packed", "sent", "delivered", "lost", "returned"},
    "sent": {"sent", "delivered", "lost", "returned"},
    "delivered": {"delivered"},
    "lost": {"lost", "returned"},
    "returned": {"returned"},
}
"""The allowed transitions of a parcel, written down by hand."""


class Reference:
    """The expected content of a store."""

    def __init__(self) -> None:
        self.records: dict[Key, Record] = {}
        self.handlers: dict[Key, str] = {}
        self.entries: list[tuple[Key, int, Note]] = []
        self.requests: dict[str, tuple[str, bytes]] = {}

    def check(self, work: Sequence[Work], outcomes: Sequence[Outcome]) -> None:
        """Compare the outcomes with the expected ones, and apply the changes."""
        commits = [commit for item in work for commit in _commits_of(item)]
        assert len(outcomes) == len(commits)
        for commit, outcome in zip(commits, outcomes, strict=True):
            self._check_one(commit, outcome)

    def ready(self, claim: Claim, now: datetime) -> list[Record]:
        """Return the expected records of a claim, in order."""
        found = [
            record
            for record in self.records.values()
            if record.kind == claim.kind
            and record.queue in claim.queues
            and all(label in claim.labels for label in record.labels)
            and (claim.handlers is None or self.handlers[record.key] in ("", *claim.handlers))
            and record.ready_at is not None
            and record.ready_at <= now
        ]
        return sorted(found, key=_claim_order)[: claim.limit]

    def due(self, limit: int, now: datetime) -> list[Record]:
        """Return the expected records of a sweep, in order."""
        late = [
            record for record in self.records.values() if record.deadline_at and record.deadline_at <= now
        ]
        return sorted(late, key=lambda record: (record.deadline_at, record.id))[:limit]

    def matching(self, query: Query) -> list[Record]:
        """Return the expected matches, in order."""
        found = [
            record
            for record in self.records.values()
            if (not query.states or record.state in query.states)
            and (query.parent is None or record.parent == query.parent)
            and (query.queue is None or record.queue == query.queue)
            and all(label in record.labels for label in query.labels)
        ]
        return sorted(found, key=lambda record: (record.created_at, record.id), reverse=query.newest_first)

    def forget(self, states: Sequence[str]) -> tuple[int, int]:
        """Remove the ended records; return the numbers of removals.

        These are the numbers of records and of entries.
        """
        gone = {key for key, record in self.records.items() if record.state in states}
        kept = [entry for entry in self.entries if entry[0] not in gone]
        removed = len(self.entries) - len(kept)
        self.entries = kept
        self.records = {key: record for key, record in self.records.items() if key not in gone}
        return len(gone), removed

    def _check_one(self, commit: Commit, outcome: Outcome) -> None:
        request, known = commit.request, self.requests.get(commit.request.id if commit.request else "")
        match outcome:
            case Repeated(recorded):
                assert request is not None
                assert known == (request.fingerprint, recorded.answer.body)
            case RequestReused(recorded, fingerprint):
                assert request is not None
                assert known == (recorded.fingerprint, recorded.answer.body)
                assert recorded.fingerprint != fingerprint == request.fingerprint
            case _:
                assert known is None, "This request was known."
                self._check_effect(commit, outcome)

    def _check_effect(self, commit: Commit, outcome: Outcome) -> None:
        if isinstance(outcome, TooLate):
            assert commit.not_after is not None
            assert commit.not_after < outcome.now
            return
        expected = self._conflict(commit) or self._illegal(commit)
        if expected is not None:
            assert outcome == expected
            return
        assert isinstance(outcome, Committed), outcome
        assert commit.not_after is None or commit.not_after >= outcome.at
        self._write(commit, outcome.at)

    def _conflict(self, commit: Commit) -> Conflict | None:
        for change in commit.changes:
            record = self.records.get(change.key)
            found = record.version if record else 0
            if found != change.expected or (record and change.expected_at not in (None, record.updated_at)):
                return Conflict(change.key, change.expected, found)
        return None

    def _illegal(self, commit: Commit) -> Illegal | None:
        for change in commit.changes:
            source = self.records[change.key].state if change.key in self.records else ""
            if change.state not in LEGAL[source]:
                return Illegal(change.key, source, change.state)
        return None

    def _write(self, commit: Commit, at: datetime) -> None:
        for change in commit.changes:
            before = self.records.get(change.key)
            self.records[change.key] = _record_after(change, before, at)
            self.handlers[change.key] = change.handler
            if change.note is not None:
                self.entries.append((change.key, change.expected + 1, change.note))
        if commit.request is not None:
            self.requests[commit.request.id] = (commit.request.fingerprint, commit.request.answer.body)


def _commits_of(item: Work) -> list[Commit]:
    """Return a commit for each record of a batch."""
    if isinstance(item, Commit):
        return [item]
    found: list[Commit] = []
    for place, name in enumerate(item.ids):
        change = Change(
            kind=item.change.kind,
            id=name,
            expected=item.change.expected,
            expected_at=item.expected_at[place] if item.expected_at else None,
            state=item.change.state,
            body=item.change.body,
            given=item.given[place] if item.given else None,
            result=item.result[place] if item.result else None,
            parent=item.change.parent,
            queue=item.change.queue,
            labels=item.change.labels,
            priority=item.change.priority,
            ready_at=item.change.ready_at,
            handler=item.change.handler,
            deadline_at=item.change.deadline_at,
            note=item.change.note,
        )
        found.append(Commit(changes=(change,), not_after=item.not_after))
    return found


def _record_after(change: Change, before: Record | None, at: datetime) -> Record:
    result = before.result if before else b""
    return Record(
        kind=change.kind,
        id=change.id,
        state=change.state,
        version=change.expected + 1,
        body=change.body,
        given=before.given if before else change.given or b"",
        result=result if change.result is None else change.result,
        parent=change.parent,
        queue=change.queue,
        labels=change.labels,
        priority=change.priority,
        ready_at=change.ready_at,
        deadline_at=change.deadline_at,
        created_at=before.created_at if before else at,
        updated_at=at,
    )


def _claim_order(record: Record) -> tuple[float, str]:
    assert record.ready_at is not None
    return record.ready_at.timestamp() - 60 * record.priority, record.id


NAMES = ("a", "b", "c", "d", "e")
STATES = CATALOGUE["parcel"].states
HOUR = timedelta(hours=1)


class WriteCall(msgspec.Struct, frozen=True):
    """A change, described independently of the present content."""

    name: str
    off: int
    """Offset of the expected version from the true one."""
    off_us: int | None
    """Offset of the expected time from the true one; None for no expectation."""
    state: str
    queue: str
    labels: tuple[str, ...]
    handler: str
    priority: int
    ready_h: int | None
    """Time at which it is ready, in hours from the start."""
    deadline_h: int | None
    noted: bool
    result: bytes | None = None


class CommitCall(msgspec.Struct, frozen=True):
    """A commit of a batch."""

    writings: tuple[WriteCall, ...]
    request_id: str
    fingerprint: str
    not_after_h: int | None


class Committings(msgspec.Struct, frozen=True):
    """Commit several at once."""

    commits: tuple[CommitCall, ...]


class Together(msgspec.Struct, frozen=True):
    """Change several records alike, as batches, one after the other in one call."""

    batches: tuple[tuple[WriteCall, tuple[str, ...], int | None], ...]
    """The change, the names of the records, and the deadline."""


class ClaimStep(msgspec.Struct, frozen=True):
    """Claim, and send every second one from `first` on; or fail."""

    claim: Claim
    first: int
    fails: bool
    together: bool = False


class SweepCall(msgspec.Struct, frozen=True):
    """Sweep, and send every second one from `first` on; or fail."""

    limit: int
    first: int
    fails: bool


class FindStep(msgspec.Struct, frozen=True):
    """Find and count, page by page."""

    query: Query


class PruneCall(msgspec.Struct, frozen=True):
    """Prune the records in these states."""

    states: tuple[str, ...]


ModelCall: TypeAlias = Committings | Together | ClaimStep | SweepCall | FindStep | PruneCall

_labels = st.sampled_from([(), ("x",), ("x", "y")])
_handlers = st.sampled_from(["", "", "van", "bike"])
_hours = st.sampled_from([None, None, -3, -2, -1, 1])
_queues = st.sampled_from(["post", "rail"])
_writings = st.builds(
    WriteCall,
    name=st.sampled_from(NAMES),
    off=st.sampled_from([0, 0, 0, 0, 1, -1]),
    off_us=st.sampled_from([None, None, 0, 0, 0, 1]),
    state=st.sampled_from(["packed", "packed", "packed", *STATES]),
    queue=_queues,
    labels=_labels,
    handler=_handlers,
    priority=st.integers(-70, 70),
    ready_h=_hours,
    deadline_h=_hours,
    noted=st.booleans(),
    result=st.sampled_from([None, None, b"1", b'{"a":2}']),
)
_together = st.tuples(
    _writings,
    st.lists(st.sampled_from(NAMES), min_size=1, unique=True).map(tuple),
    st.sampled_from([None, None, None, 1, -1]),
)
_commits = st.builds(
    CommitCall,
    writings=st.lists(_writings, max_size=3, unique_by=lambda writing: writing.name).map(tuple),
    request_id=st.sampled_from(["", "", "", "r", "s"]),
    fingerprint=st.sampled_from("ab"),
    not_after_h=st.sampled_from([None, None, None, 1, -1]),
)
_claims = st.builds(
    take,
    limit=st.integers(1, 6),
    queues=st.lists(_queues, unique=True, min_size=1).map(tuple),
    labels=st.sampled_from([(), ("x",), ("y", "x"), ("x", "y", "z")]),
    handlers=st.sampled_from([(), ("van",), ("bike", "van", "walk"), (*MANY_HANDLERS, "van"), None]),
)
_queries = st.builds(
    Query,
    kind=st.just("parcel"),
    states=st.lists(st.sampled_from(STATES), max_size=2, unique=True).map(tuple),
    queue=st.none() | _queues,
    labels=_labels,
    newest_first=st.booleans(),
    limit=st.integers(1, 4),
)
_fails = st.sampled_from([False, False, False, True])
_ends = st.lists(st.sampled_from(["delivered", "lost", "returned"]), min_size=1, unique=True).map(tuple)
_calls: st.SearchStrategy[ModelCall] = st.one_of(
    st.builds(Committings, commits=st.lists(_commits, min_size=1, max_size=5).map(tuple)),
    st.builds(Committings, commits=st.lists(_commits, min_size=1, max_size=5).map(tuple)),
    st.builds(Together, batches=st.lists(_together, min_size=1, max_size=3).map(tuple)),
    st.builds(ClaimStep, claim=_claims, first=st.integers(0, 1), fails=_fails, together=st.booleans()),
    st.builds(SweepCall, limit=st.integers(1, 6), first=st.integers(0, 1), fails=_fails),
    st.builds(FindStep, query=_queries),
    st.builds(PruneCall, states=_ends),
)


@settings(
    max_examples=25,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(calls=st.lists(_calls, min_size=1, max_size=14))
async def test_any_sequence_of_calls_has_the_outcome_of_the_contract(
    store: Store, calls: list[ModelCall]
) -> None:
    await _empty(store)
    play = Play(store, await store.now(), await store.latest())
    for call in calls:
        await play.make(call)
        await play.compare()


async def _empty(store: Store) -> None:
    """Empty the store, which is cheaper than a new database for each sequence."""
    found = await store.find(Query(kind="parcel"))
    ends = {"packed": "lost", "sent": "lost"}
    await made(store, *(move(record, ends[record.state]) for record in found.records if record.state in ends))
    await store.prune(kind="parcel", states=("delivered", "lost", "returned"), older_than=timedelta(0))


_turns = itertools.count(1)


class FailedDecision(Exception):
    """A decision that fails."""


class Play:
    """A store and its reference."""

    def __init__(self, store: Store, beginning: datetime, cursor: str) -> None:
        self.store = store
        self.beginning = beginning
        self.cursor = cursor
        self.turn: int = next(_turns)
        self.reference: Reference = Reference()

    async def make(self, call: ModelCall) -> None:
        """Apply a call to both, and compare the outcomes."""
        match call:
            case Committings(commits):
                work = [self._commit(commit) for commit in commits]
                self.reference.check(work, await self.store.commit(work))
            case Together(together):
                batches = [self._batch(*each) for each in together]
                self.reference.check(batches, await self.store.commit(batches))
            case ClaimStep(claim, first, fails, together):
                expected = self.reference.ready(claim, self.beginning)
                decider = SendingDecider(expected, first, fails, together)
                await self._decided(decider, lambda: self.store.claim(claim, decider))
            case SweepCall(limit, first, fails):
                decider = SendingDecider(self.reference.due(limit, self.beginning), first, fails)
                await self._decided(decider, lambda: self.store.due(["parcel"], limit, decider))
            case FindStep(query):
                await self._find(query)
            case PruneCall(states):
                pruned = await self.store.prune(kind="parcel", states=states, older_than=timedelta(0))
                assert (pruned.records, pruned.entries) == self.reference.forget(states)

    async def compare(self) -> None:
        """Assert that both have the same content."""
        found = await self.store.load([Key("parcel", name) for name in NAMES])
        assert {record.key: record for record in found if record} == self.reference.records
        entries = await whole_feed(self.store, self.cursor, limit=5)
        assert [(Key(e.kind, e.id), e.version, e.note) for e in entries] == self.reference.entries

    async def _decided(self, decider: SendingDecider, call: Callable[[], Awaitable[list[Outcome]]]) -> None:
        if decider.fails and decider.expected:
            with pytest.raises(FailedDecision):
                await call()
        else:
            outcomes = await call()
            self.reference.check(decider.commits, outcomes)
            assert decider.called == bool(decider.expected), "It is called when there is something."

    async def _find(self, query: Query) -> None:
        expected = self.reference.matching(query)
        number = len(expected)
        assert await self.store.count(query, cap=3) == Count(min(number, 3), capped=number > 3)
        while True:
            page = await self.store.find(query)
            assert list(page.records) == expected[: query.limit]
            expected = expected[query.limit :]
            assert bool(page.cursor) == bool(expected)
            if not page.cursor:
                return
            query = msgspec.structs.replace(query, cursor=page.cursor)

    def _commit(self, commit: CommitCall) -> Commit:
        return Commit(
            changes=tuple(self._change(writing) for writing in commit.writings),
            request=self._request(commit) if commit.request_id else None,
            not_after=self._time_at(commit.not_after_h),
        )

    def _batch(self, writing: WriteCall, names: tuple[str, ...], not_after_h: int | None) -> Batch:
        """Return a batch; records in another version than the first are refused."""
        first = self._change(msgspec.structs.replace(writing, name=names[0]))
        found = [self.reference.records.get(Key("parcel", name)) for name in names]
        seen = tuple([record.updated_at if record else None for record in found])
        return Batch(
            change=msgspec.structs.replace(first, id="", expected_at=None, given=None, result=None),
            ids=names,
            expected_at=() if writing.off_us is None or first.expected == 0 else seen,
            given=() if first.given is None else tuple(b'"%s"' % name.encode() for name in names),
            result=() if writing.result is None else tuple(b'["%s"]' % name.encode() for name in names),
            not_after=self._time_at(not_after_h),
        )

    def _request(self, commit: CommitCall) -> Request:
        """Return a request with an id of its own.

        Requests outlive a sequence.
        """
        return request(f"{commit.request_id}{self.turn}", fingerprint=commit.fingerprint)

    def _change(self, writing: WriteCall) -> Change:
        record = self.reference.records.get(Key("parcel", writing.name))
        expected = max(0, (record.version if record else 0) + writing.off)
        return Change(
            kind="parcel",
            id=writing.name,
            expected=expected,
            expected_at=None
            if record is None or writing.off_us is None
            else record.updated_at + timedelta(microseconds=writing.off_us),
            state=writing.state,
            body=b'{"off":%d}' % writing.off,
            given=b'["%s"]' % writing.queue.encode() if not expected and writing.noted else None,
            result=writing.result,
            queue=writing.queue,
            labels=writing.labels,
            handler=writing.handler,
            priority=writing.priority,
            ready_at=self._time_at(writing.ready_h),
            deadline_at=self._time_at(writing.deadline_h),
            note=SENDING if writing.noted else None,
        )

    def _time_at(self, hours: int | None) -> datetime | None:
        return None if hours is None else self.beginning + hours * HOUR


class SendingDecider:
    """Checks the records of a claim, and sends every second one; or fails."""

    def __init__(self, expected: Sequence[Record], first: int, fails: bool, together: bool = False) -> None:
        self.expected: list[Record] = list(expected)
        self.first = first
        self.fails = fails
        self.together = together
        self.called: bool = False
        self.commits: list[Work] = []

    def __call__(self, records: Sequence[Record], _now: datetime) -> list[Work]:
        assert not self.called, "It is called once."
        self.called = True
        assert list(records) == self.expected
        if self.fails:
            raise FailedDecision
        chosen = records[self.first :: 2]
        changes = [move(r, r.state, ready_at=None, deadline_at=None, note=SENDING) for r in chosen]
        self.commits = _batched(changes) if self.together else [*each(*changes)]
        return self.commits


def _batched(changes: Sequence[Change]) -> list[Work]:
    """Return the changes as batches of equal ones."""
    alike: dict[Change, list[Change]] = {}
    for change in changes:
        alike.setdefault(msgspec.structs.replace(change, id="", expected_at=None), []).append(change)
    return [
        Batch(
            change=change,
            ids=tuple(each.id for each in some),
            expected_at=tuple(each.expected_at for each in some),
        )
        for change, some in alike.items()
    ]
