"""Commits as calls of the functions in the database, and their answers as outcomes.

Commits are validated, then split into waves (commits that touch different records) and batches (one change of
many records), or are one change of one record. Each becomes the arguments of one call (see
`sql/0014_batch.sql`, `sql/0015_commit.sql` and `sql/0017_single.sql`). It is first tried optimistically, and
checked in detail after a conflict.

Why: decisions 0274 and 0440.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from operator import attrgetter, itemgetter
from typing import Any, TypeAlias, TypeVar

import asyncpg
import msgspec

from interlock.store.catalogue import Catalogue
from interlock.store.contract import Capabilities
from interlock.store.plain import split_plain
from interlock.store.postgres.columns import (
    END,
    NOTHING,
    Column,
    Ends,
    bodies_of,
    columns_of,
    ends_in,
    ends_of,
    given_of,
    handlers_of,
    is_end,
    joined,
    joined_data,
    labels_as_text,
    moments,
    notes_of,
    numbers,
    results_of,
)
from interlock.store.postgres.connections import Session
from interlock.store.postgres.failures import RolledBack, translate
from interlock.store.postgres.queries import query as statement
from interlock.store.postgres.rows import recorded_of
from interlock.store.postgres.target import Target
from interlock.store.ranking import lane_of, microseconds, rank_of
from interlock.store.records import (
    Batch,
    Change,
    Claim,
    Commit,
    Committed,
    Conflict,
    Foresight,
    Guard,
    Illegal,
    Outcome,
    Record,
    Repeated,
    Request,
    RequestReused,
    TooLate,
    Work,
)
from interlock.store.validation import check_commits, waves

_encoder = msgspec.json.Encoder()

Statement: TypeAlias = tuple[str, list[Any]]
"""The name of a statement, and its arguments."""

_ORDER = ("repeated", "late", "stale", "illegal")
"""Precedence of obstacles."""


class Wave:
    """Commits of which no two touch the same record or request.

    `held` are records that were just read: if such a record has the expected version and its body is the same
    object, the body is unchanged and need not be sent.
    """

    def __init__(self, ends: Ends, commits: Sequence[Commit], held: Sequence[Record] = ()) -> None:
        self._ends = ends
        self._commits = commits
        self._held = held
        self._changes, self._places, self._turns = _in_the_order_of_keys(commits)

    def arguments(self, judging: bool, not_before: datetime) -> list[Any]:
        """Return the arguments of `write_wave`. Times are expensive for the driver: only a judgement needs
        all limits.
        """
        limits, requests = self._limits(), self._requests()
        return [
            judging,
            not_before,
            joined([change.id for change in self._changes]),
            bodies_of(self._changes, self._held),
            *self._columns_and_notes(),
            *_columns(_refusals(self._commits), 4),
            min([limit for _, limit in limits], default=None),
            *_columns(limits if judging else [], 2),
            *_columns([(place, *_request_row(request)) for place, request in requests], 7),
        ]

    def trial(self, not_before: datetime) -> Statement:
        """Return the statement that writes everything or nothing; in the latter case there is no answer."""
        return "try_wave", self.arguments(False, not_before)[1:]

    def judged(self, not_before: datetime) -> Statement:
        """Return the statement that writes what is possible, and reports the obstacles of the rest."""
        return "judge", self.arguments(True, not_before)[1:]

    def within(self, judging: bool, not_before: datetime) -> Statement:
        """Return the statement for an open transaction; without `judging`, an obstacle raises."""
        return "write", self.arguments(judging, not_before)

    def _limits(self) -> list[tuple[int, datetime]]:
        return [(p, c.not_after) for p, c in enumerate(self._commits) if c.not_after is not None]

    def _requests(self) -> list[tuple[int, Request]]:
        return [(p, c.request) for p, c in enumerate(self._commits) if c.request is not None]

    def _columns_and_notes(self) -> tuple[str | None, list[str | None], list[str | None]]:
        """Return the notes, the shared values and the columns of the changes: see `sql/0015_commit.sql`."""
        changes = self._changes
        if not changes:
            return "", [], []
        shared_note, notes = notes_of([change.note for change in changes])
        columns = [
            *self._places_and_turns(),
            *columns_of(changes),
            moments([change.expected_at for change in changes]),
            (shared_note, None),
            handlers_of(changes),
            results_of(changes),
            given_of(changes),
            ends_of(changes, self._ends),
        ]
        return notes, [shared for shared, _ in columns], [varied for _, varied in columns]

    def _places_and_turns(self) -> tuple[Column, Column]:
        """Return the commit and position of each change; empty if each commit has one, in order."""
        if self._places is None:
            return NOTHING, NOTHING
        return numbers(self._places), numbers(self._turns)

    def outcomes(self, rows: Sequence[asyncpg.Record]) -> list[Outcome]:
        """Return the outcome of each commit. Rows after the first are obstacles."""
        time: datetime = rows[0]["at"]
        if len(rows) == 1:
            return [Committed(time)] * len(self._commits)
        obstacles: dict[int, list[tuple[int, int, Outcome]]] = {}
        for row in rows[1:]:
            place, position, outcome = self._obstacle(row, time)
            obstacles.setdefault(place, []).append((_ORDER.index(row["verdict"]), position, outcome))
        return [
            min(obstacles[place], key=itemgetter(0, 1))[2] if place in obstacles else Committed(time)
            for place in range(len(self._commits))
        ]

    def _obstacle(self, row: asyncpg.Record, time: datetime) -> tuple[int, int, Outcome]:
        """Return the commit of an obstacle, its change, and the outcome. SQL counts from 1."""
        item = row["item"] - 1
        match row["verdict"]:
            case "repeated":
                place, request = self._requests()[item]
                recorded = recorded_of(row, request.id)
                same = recorded.fingerprint == request.fingerprint
                return place, 0, Repeated(recorded) if same else RequestReused(recorded, request.fingerprint)
            case "late":
                place, not_after = self._limits()[item]
                return place, 0, TooLate(not_after, time)
            case "stale":
                change = self._changes[item]
                return *self._position(item), Conflict(change.key, change.expected, row["found"])
            case _:
                change = self._changes[item]
                return *self._position(item), Illegal(change.key, row["source"], change.state)

    def _position(self, item: int) -> tuple[int, int]:
        """Return the commit of a change, and its position there."""
        if self._places is None:
            return item, 0
        return self._places[item], self._turns[item]


class PlainWave(Wave):
    """A commit with plain creations at its end, such as jobs and their unique keys.

    After a conflict it is judged as a wave of all its changes.
    """

    def __init__(
        self,
        ends: Ends,
        commit: Commit,
        first: Sequence[Change],
        plain: Sequence[Change],
        held: Sequence[Record],
    ) -> None:
        super().__init__(ends, [msgspec.structs.replace(commit, changes=tuple(first))], held)
        self._commit = commit
        self._plain = plain

    def trial(self, not_before: datetime) -> Statement:
        """Return the statement that writes everything or nothing; in the latter case there is no answer."""
        plain = sorted(
            self._plain, key=attrgetter("id")
        )  # of two that create the same, one waits for the other
        ids, bodies = joined([each.id for each in plain]), joined_data([each.body for each in plain])
        of_kind, to_state = plain[0].kind, plain[0].state
        return "try_with_plain", [*super().trial(not_before)[1], of_kind, to_state, ids, bodies]

    def judged(self, not_before: datetime) -> Statement:
        """Return the statement that writes what is possible, and reports the obstacles of the rest."""
        return self._whole().judged(not_before)

    def within(self, judging: bool, not_before: datetime) -> Statement:
        """Return the statement for an open transaction; without `judging`, an obstacle raises."""
        return self._whole().within(judging, not_before)

    def outcomes(self, rows: Sequence[asyncpg.Record]) -> list[Outcome]:
        """Return the outcome of the commit."""
        return [Committed(rows[0]["at"])] if len(rows) == 1 else self._whole().outcomes(rows)

    def _whole(self) -> Wave:
        return Wave(self._ends, [self._commit], self._held)


def _in_the_order_of_keys(commits: Sequence[Commit]) -> tuple[list[Change], list[int] | None, list[int]]:
    """Return all changes in lock order, with the commit of each, and its position in it.

    There are no commits and no positions if each commit has one change, in order.
    """
    singles = [commit.changes[0] for commit in commits if len(commit.changes) == 1]
    if len(singles) == len(commits):
        ids = [change.id for change in singles]
        if ids == sorted(ids) and len({change.kind for change in singles}) == 1:
            return singles, None, []
    keyed = sorted(  # no two keys are equal, so the rest is not compared
        [
            (change.kind, change.id, place, turn, change)
            for place, commit in enumerate(commits)
            for turn, change in enumerate(commit.changes)
        ]
    )
    _, _, places, turns, changes = zip(*keyed, strict=True) if keyed else ((),) * 5
    return list(changes), list(places), list(turns)


def _refusals(commits: Sequence[Commit]) -> list[tuple[int, str, str, str]]:
    return [
        (place, refused.kind, refused.id, _encoder.encode(refused.note).decode())
        for place, commit in enumerate(commits)
        for refused in commit.refusals
    ]


def _request_row(request: Request) -> tuple[str, str, str, int, bytes, float]:
    answer = request.answer
    return request.id, request.endpoint, request.fingerprint, answer.status, answer.body, request.ttl_s


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


T = TypeVar("T")


class BatchPart:
    """One change of several distinct records. After a conflict it is judged as a wave."""

    def __init__(self, ends: Ends, batch: Batch) -> None:
        self._ends = ends
        self._batch = batch
        self.channel: str | None = None
        """The channel on which the commit itself notifies others; None if it does not."""

    @property
    def number(self) -> int:
        """Number of records."""
        return len(self._batch.ids)

    def trial(self, not_before: datetime) -> Statement:
        """Return the statement that writes everything or nothing; in the latter case there is no answer."""
        return "try_batch", self._arguments(not_before)

    def judged(self, not_before: datetime) -> Statement:
        """Return the statement that writes what is possible, and reports the obstacles of the rest."""
        self.channel = None
        return self._wave().judged(not_before)

    def within(self, judging: bool, not_before: datetime) -> Statement:
        """Return the statement for an open transaction; without `judging`, an obstacle raises."""
        if judging:
            return self._wave().within(judging, not_before)
        return "write_batch", self._arguments(not_before)

    def outcomes(self, rows: Sequence[asyncpg.Record]) -> list[Outcome]:
        """Return the outcome of each record."""
        if len(rows) > 1:
            return self._wave().outcomes(rows)
        return [Committed(rows[0]["at"])] * len(self._batch.ids)

    def _wave(self) -> Wave:
        return Wave(self._ends, self._batch.commits())

    def _arguments(self, not_before: datetime) -> list[object]:
        """Return the arguments: see `sql/0014_batch.sql`. Records are locked by key, and journalled in the
        order of the batch.
        """
        batch, journal_ids = self._batch, None
        ids, seen, given, results = batch.ids, batch.expected_at, batch.given, batch.result
        order = sorted(range(len(ids)), key=ids.__getitem__)
        if order != list(range(len(ids))):
            journal_ids = joined(ids)
            ids, seen = _in(order, ids), _in(order, seen)
            given, results = _in(order, given), _in(order, results)
        expected_at, written_at = moments(seen) if seen else (None, None)
        return [
            not_before,
            batch.not_after,
            joined(ids),
            journal_ids,
            joined_data(given) if given else None,
            joined_data(results) if results else None,
            written_at,
            [*_shared_values(batch.change, self._ends), expected_at, self.channel],
        ]


def _in(order: Sequence[int], column: tuple[T, ...]) -> tuple[T, ...]:
    return tuple([column[place] for place in order]) if column else ()


class SinglePart:
    """One change of one record, the most common commit. After a conflict it is judged as a wave."""

    number = 1

    def __init__(self, ends: Ends, change: Change, not_after: datetime | None) -> None:
        self._ends = ends
        self._change = change
        self._not_after = not_after
        self.channel: str | None = None
        """The channel on which the commit itself notifies others; None if it does not."""

    def trial(self, not_before: datetime) -> Statement:
        """Return the statement that writes it or nothing; in the latter case the answer has no time."""
        return "write_one", self._arguments(not_before)

    def judged(self, not_before: datetime) -> Statement:
        """Return the statement that writes it, or reports its obstacle."""
        self.channel = None
        return self._wave().judged(not_before)

    def within(self, judging: bool, not_before: datetime) -> Statement:
        """Return the statement for an open transaction."""
        return self._wave().within(judging, not_before) if judging else self.trial(not_before)

    def outcomes(self, rows: Sequence[asyncpg.Record]) -> list[Outcome]:
        """Return the outcome."""
        return [Committed(rows[0]["at"])] if len(rows) == 1 else self._wave().outcomes(rows)

    def _wave(self) -> Wave:
        return Wave(self._ends, [Commit(changes=(self._change,), not_after=self._not_after)])

    def _arguments(self, not_before: datetime) -> list[object]:
        """Return the arguments: see `sql/0017_single.sql`."""
        change = self._change
        ready_at, labels, result = change.ready_at, change.labels, change.result
        return [
            not_before,
            self._not_after,
            change.kind,
            change.id,
            change.expected,
            change.expected_at,
            change.state,
            is_end(change, self._ends),
            change.body.decode(),
            change.given.decode() if change.given else None,
            None if result is None else result.decode(),
            change.parent,
            change.queue,
            labels or None,
            None if ready_at is None else lane_of(change.queue or "", labels, change.handler),
            change.priority,
            ready_at,
            None if ready_at is None else rank_of(ready_at, change.priority),
            change.deadline_at,
            None if change.note is None else _encoder.encode(change.note).decode(),
            self.channel,
        ]


class PairPart(SinglePart):
    """A created record, and a plain one that is created with it, such as a job and its unique key."""

    number = 2

    def __init__(self, ends: Ends, commit: Commit) -> None:
        super().__init__(ends, commit.changes[0], commit.not_after)
        self._commit = commit

    def trial(self, not_before: datetime) -> Statement:
        """Return the statement that writes both or none; in the latter case the answer has no time."""
        other = self._commit.changes[1]
        named = [other.kind, other.id, other.state, other.body.decode()]
        return "create_pair", [*self._arguments(not_before), *named]

    def _wave(self) -> Wave:
        return Wave(self._ends, [self._commit])


def few_of(work: Work, ends: Ends) -> SinglePart | None:
    """Return work that changes only one record, or creates two; None for other work."""
    if type(work) is Batch:
        return _single_in(work, ends) if len(work.ids) == 1 else None
    assert isinstance(work, Commit)
    if not 1 <= len(work.changes) <= 2 or work.refusals or work.request is not None:
        return None
    if len(work.changes) == 2:
        return PairPart(ends, work) if _is_pair(*work.changes, ends) else None
    change = work.changes[0]
    # Removing a result needs a wave: NULL keeps it.
    return None if change.result == b"" else SinglePart(ends, change, work.not_after)


def _is_pair(first: Change, other: Change, ends: Ends) -> bool:
    """Return whether both are created and live, and the second one has nothing but a body."""
    plain = Change(kind=other.kind, id=other.id, expected=0, state=other.state, body=other.body)
    created = first.expected == 0 and first.result is None and other == plain and first.kind != other.kind
    return created and not is_end(first, ends) and not is_end(other, ends)


def _single_in(batch: Batch, ends: Ends) -> SinglePart:
    change = msgspec.structs.replace(
        batch.change,
        id=batch.ids[0],
        expected_at=batch.expected_at[0] if batch.expected_at else None,
        given=batch.given[0] if batch.given else None,
        result=batch.result[0] if batch.result else None,
    )
    return SinglePart(ends, change, batch.not_after)


def _shared_values(change: Change, ends: Ends) -> list[str | None]:
    """Return the values that all records of a batch share."""
    ready_at, deadline_at = change.ready_at, change.deadline_at
    return [
        change.kind,
        str(change.expected),
        change.state,
        change.body.decode(),
        change.parent,
        change.queue,
        labels_as_text(change.labels),
        change.handler or None,
        str(change.priority),
        None if ready_at is None else str(microseconds(ready_at)),
        None if ready_at is None else str(rank_of(ready_at, change.priority)),
        None if deadline_at is None else str(microseconds(deadline_at)),
        None if change.note is None else _encoder.encode(change.note).decode(),
        END if is_end(change, ends) else None,
    ]


Part: TypeAlias = Wave | BatchPart | SinglePart
"""The unit of one statement."""

GUARDED = frozenset(("write_one", "try_batch"))
"""Statements with a variant for claims: it reads the guard again when writing."""
_FEW = 16
"""A smaller batch that comes with other commits is written with them."""


def guard_of(claim: Claim) -> tuple[str | None, str | None, list[str]]:
    """Return kind, id and states of the guard of a claim; empty without one."""
    return (None, None, []) if claim.guard is None else _standing(claim.guard)


def _standing(guard: Guard) -> tuple[str, str, list[str]]:
    return guard.key.kind, guard.key.id, list(guard.states)


class CommitWriter:
    """The common part of committing and claiming."""

    def __init__(self, target: Target, catalogue: Catalogue, capabilities: Capabilities) -> None:
        self.know(catalogue)
        self.seen: datetime = datetime(1970, 1, 1, tzinfo=UTC)
        """The latest time received from the server."""
        self._target = target
        self._max_body_bytes = capabilities.max_body_bytes
        self._max_batch = capabilities.max_batch

    def know(self, catalogue: Catalogue) -> None:
        """Set the catalogue."""
        self.catalogue = catalogue
        self._ends = ends_in(catalogue)

    def saw(self, now: datetime) -> datetime:
        """Return the store's time, which never decreases, even if the server's does."""
        self.seen = max(self.seen, now)
        return self.seen

    def check(self, work: Sequence[Work]) -> None:
        """Raise for invalid commits."""
        check_commits(self.catalogue, work, self._max_body_bytes)

    def foreseen(self, foresight: Foresight) -> list[object]:
        """Return the shape and the change as arguments of a foreseen claim; raise if it is invalid."""
        like, change = foresight.like, foresight.change
        self.check([Batch(change=change, ids=(like.id,))])
        with self._text_is_text():
            return [
                like.state,
                like.version,
                like.body.decode(),
                like.parent,
                like.queue,
                list(like.labels) or None,
                like.priority,
                [*_shared_values(change, self._ends), None, None],
                foresight.valid_until,
            ]

    def parts(self, work: Sequence[Work], held: Sequence[Record] = ()) -> list[Part]:
        """Split the work where a record or a request repeats, at batches, and at the maximum size."""
        if len(work) == 1 and (few := few_of(work[0], self._ends)) is not None:
            return [few]
        parts: list[Part] = []
        commits: list[Commit] = []
        for item in work:
            if isinstance(item, Commit):
                commits.append(item)
            elif len(item.ids) < _FEW and len(work) > 1:
                commits += item.commits()
            else:
                parts += self._waves(commits, held)
                commits = []
                parts += self._batches(item)
        return parts + self._waves(commits, held)

    def _batches(self, batch: Batch) -> list[Part]:
        most = self._max_batch
        if len(batch.ids) <= most:
            return [BatchPart(self._ends, batch)]
        return [
            BatchPart(
                self._ends,
                msgspec.structs.replace(
                    batch,
                    ids=batch.ids[start : start + most],
                    expected_at=batch.expected_at[start : start + most],
                    given=batch.given[start : start + most],
                    result=batch.result[start : start + most],
                ),
            )
            for start in range(0, len(batch.ids), most)
        ]

    def _waves(self, commits: Sequence[Commit], held: Sequence[Record]) -> list[Part]:
        if len(commits) == 1:
            commit = commits[0]
            if (few := few_of(commit, self._ends)) is not None:
                return [few]
            first, plain = split_plain(commit.changes)
            if plain and not is_end(plain[0], self._ends):
                return [PlainWave(self._ends, commit, first, plain, held)]
        most = self._max_batch
        return [
            Wave(self._ends, wave[start : start + most], held)
            for wave in waves(commits)
            for start in range(0, len(wave), most)
        ]

    def wave(self, commits: Sequence[Commit]) -> Wave:
        """Return commits of which no two touch the same record, to be written by one statement."""
        return Wave(self._ends, commits)

    def read(self, part: Part, rows: Sequence[Any]) -> list[Outcome]:
        """Return what became of a part, from the rows that another driver may have read."""
        at: datetime = rows[0]["at"]
        self.saw(at.astimezone(UTC))
        return part.outcomes(rows)

    def call(self, part: Part, *, judging: bool) -> Statement:
        """Return the call that writes a part within a transaction."""
        with self._text_is_text():
            return part.within(judging, self.seen)

    async def write(self, session: Session, part: Part, guard: Guard | None = None) -> list[Outcome]:
        """Write a part optimistically; after a conflict, write it again with detailed checks."""
        with self._text_is_text():
            name, arguments = part.trial(self.seen) if session.attempt == 1 else part.judged(self.seen)
        if guard is not None and name in GUARDED:
            name, arguments = f"{name}_guarded", [*arguments, *_standing(guard)]
        rows = await session.fetch(statement(name, self._target.schema), *arguments, writes=True)
        if not rows or rows[0]["at"] is None:
            raise RolledBack
        return self._outcomes(part, rows)

    async def write_all(self, session: Session, parts: Sequence[Part], guard: Guard | None) -> list[Outcome]:
        """Write all parts or none, optimistically."""
        if len(parts) == 1:
            return await self.write(session, parts[0], guard)
        with self._text_is_text():
            calls = [(part, part.trial(self.seen)) for part in parts]
        outcomes: list[Outcome] = []
        await session.begin()
        for part, (name, arguments) in calls:
            rows = await session.within(statement(name, self._target.schema), *arguments)
            if not rows or rows[0]["at"] is None:
                await session.rollback()
                raise RolledBack
            outcomes += self._outcomes(part, rows)
        await session.commit()
        return outcomes

    async def write_within(self, session: Session, part: Part, call: Statement) -> list[Outcome]:
        """Write a part in an open transaction."""
        name, arguments = call
        rows = await session.within(statement(name, self._target.schema), *arguments)
        if not rows or rows[0]["at"] is None:
            raise RolledBack
        return self._outcomes(part, rows)

    def _outcomes(self, part: Part, rows: list[asyncpg.Record]) -> list[Outcome]:
        self.saw(rows[0]["at"])
        return part.outcomes(rows)

    @contextmanager
    def _text_is_text(self) -> Iterator[None]:
        """Raise an error for bytes that are not text, before anything is sent."""
        try:
            yield
        except UnicodeDecodeError as error:
            raise translate(
                asyncpg.InvalidTextRepresentationError(str(error)), "", self._target, unknown=False
            ) from None
