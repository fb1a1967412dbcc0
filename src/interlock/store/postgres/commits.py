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
from typing import Any, TypeAlias, TypeVar

import asyncpg
import msgspec

from interlock.store.catalogue import Catalogue
from interlock.store.contract import Capabilities
from interlock.store.plain_changes import split_plain
from interlock.store.postgres.columns import (
    END,
    TerminalStates,
    ends_in,
    is_end,
    joined,
    joined_data,
    labels_as_text,
    moments,
)
from interlock.store.postgres.connections import Session
from interlock.store.postgres.failures import RolledBack, translate
from interlock.store.postgres.queries import query as statement
from interlock.store.postgres.target import Target
from interlock.store.postgres.waves import NamedStatement, PlainWave, Wave
from interlock.store.ranking import lane_of, microseconds, rank_of
from interlock.store.records import (
    Batch,
    Change,
    Claim,
    Commit,
    Committed,
    Foresight,
    Guard,
    Outcome,
    Record,
    Work,
)
from interlock.store.validation import check_commits, waves

_encoder = msgspec.json.Encoder()


T = TypeVar("T")


class BatchPart:
    """One change of several distinct records. After a conflict it is judged as a wave."""

    def __init__(self, ends: TerminalStates, batch: Batch) -> None:
        self._ends = ends
        self._batch = batch
        self.channel: str | None = None
        """The channel on which the commit itself notifies others; None if it does not."""

    @property
    def number(self) -> int:
        """Number of records."""
        return len(self._batch.ids)

    def trial(self, not_before: datetime) -> NamedStatement:
        """Return the statement that writes all or nothing.

        If it writes nothing there is no answer.
        """
        return "try_batch", self._arguments(not_before)

    def judged(self, not_before: datetime) -> NamedStatement:
        """Return the statement that writes possible changes and reports obstacles."""
        self.channel = None
        return self._wave().judged(not_before)

    def within(self, judging: bool, not_before: datetime) -> NamedStatement:
        """Return the statement for an open transaction.

        Without `judging`, an obstacle raises.
        """
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
        """Return the arguments of the statement: see `sql/0014_batch.sql`.

        Records are locked by key, and journalled in the order of the batch.
        """
        batch, journal_ids = self._batch, None
        ids, seen, given, results = batch.ids, batch.expected_at, batch.given, batch.result
        order = sorted(range(len(ids)), key=ids.__getitem__)
        if order != list(range(len(ids))):
            journal_ids = joined(ids)
            ids, seen = _in_order(order, ids), _in_order(order, seen)
            given, results = _in_order(order, given), _in_order(order, results)
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


def _in_order(order: Sequence[int], column: tuple[T, ...]) -> tuple[T, ...]:
    return tuple([column[place] for place in order]) if column else ()


class SinglePart:
    """One change of one record, the most common commit. After a conflict it is judged as a wave."""

    number = 1

    def __init__(self, ends: TerminalStates, change: Change, not_after: datetime | None) -> None:
        self._ends = ends
        self._change = change
        self._not_after = not_after
        self.channel: str | None = None
        """The channel on which the commit itself notifies others; None if it does not."""

    def trial(self, not_before: datetime) -> NamedStatement:
        """Return the statement that writes the record or nothing.

        In the latter case the answer has no time.
        """
        return "write_one", self._arguments(not_before)

    def judged(self, not_before: datetime) -> NamedStatement:
        """Return the statement that writes it, or reports its obstacle."""
        self.channel = None
        return self._wave().judged(not_before)

    def within(self, judging: bool, not_before: datetime) -> NamedStatement:
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

    def __init__(self, ends: TerminalStates, commit: Commit) -> None:
        super().__init__(ends, commit.changes[0], commit.not_after)
        self._commit = commit

    def trial(self, not_before: datetime) -> NamedStatement:
        """Return the statement that writes both records or none.

        In the latter case the answer has no time.
        """
        other = self._commit.changes[1]
        named = [other.kind, other.id, other.state, other.body.decode()]
        return "create_pair", [*self._arguments(not_before), *named]

    def _wave(self) -> Wave:
        return Wave(self._ends, [self._commit])


def few_of(work: Work, ends: TerminalStates) -> SinglePart | None:
    """Return work that changes one record or creates two, else None."""
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


def _is_pair(first: Change, other: Change, ends: TerminalStates) -> bool:
    """Return whether two live records are created, the second plainly.

    The second one has only a body.
    """
    plain = Change(kind=other.kind, id=other.id, expected=0, state=other.state, body=other.body)
    created = first.expected == 0 and first.result is None and other == plain and first.kind != other.kind
    return created and not is_end(first, ends) and not is_end(other, ends)


def _single_in(batch: Batch, ends: TerminalStates) -> SinglePart:
    change = msgspec.structs.replace(
        batch.change,
        id=batch.ids[0],
        expected_at=batch.expected_at[0] if batch.expected_at else None,
        given=batch.given[0] if batch.given else None,
        result=batch.result[0] if batch.result else None,
    )
    return SinglePart(ends, change, batch.not_after)


def _shared_values(change: Change, ends: TerminalStates) -> list[str | None]:
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


WritePart: TypeAlias = Wave | BatchPart | SinglePart
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
        """Return the store's time, which never decreases.

        The time of the server may decrease.
        """
        self.seen = max(self.seen, now)
        return self.seen

    def check(self, work: Sequence[Work]) -> None:
        """Raise for invalid commits."""
        check_commits(self.catalogue, work, self._max_body_bytes)

    def foreseen(self, foresight: Foresight) -> list[object]:
        """Return the shape and change of a claim as arguments; raise if invalid."""
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

    def parts(self, work: Sequence[Work], held: Sequence[Record] = ()) -> list[WritePart]:
        """Split the work into parts that one statement can write.

        It splits where a record or a request repeats, at batches, and at the maximum size.
        """
        if len(work) == 1 and (few := few_of(work[0], self._ends)) is not None:
            return [few]
        parts: list[WritePart] = []
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

    def _batches(self, batch: Batch) -> list[WritePart]:
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

    def _waves(self, commits: Sequence[Commit], held: Sequence[Record]) -> list[WritePart]:
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
        """Return a wave: commits of different records, for one statement."""
        return Wave(self._ends, commits)

    def read(self, part: WritePart, rows: Sequence[Any]) -> list[Outcome]:
        """Return the outcomes of a part from its rows.

        Another driver may have read the rows.
        """
        at: datetime = rows[0]["at"]
        self.saw(at.astimezone(UTC))
        return part.outcomes(rows)

    def call(self, part: WritePart, *, judging: bool) -> NamedStatement:
        """Return the call that writes a part within a transaction."""
        with self._text_is_text():
            return part.within(judging, self.seen)

    async def write(self, session: Session, part: WritePart, guard: Guard | None = None) -> list[Outcome]:
        """Write a part optimistically; after a conflict with detailed checks."""
        with self._text_is_text():
            name, arguments = part.trial(self.seen) if session.attempt == 1 else part.judged(self.seen)
        if guard is not None and name in GUARDED:
            name, arguments = f"{name}_guarded", [*arguments, *_standing(guard)]
        rows = await session.fetch(statement(name, self._target.schema), *arguments, writes=True)
        if not rows or rows[0]["at"] is None:
            raise RolledBack
        return self._outcomes(part, rows)

    async def write_all(
        self, session: Session, parts: Sequence[WritePart], guard: Guard | None
    ) -> list[Outcome]:
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

    async def write_within(self, session: Session, part: WritePart, call: NamedStatement) -> list[Outcome]:
        """Write a part in an open transaction."""
        name, arguments = call
        rows = await session.within(statement(name, self._target.schema), *arguments)
        if not rows or rows[0]["at"] is None:
            raise RolledBack
        return self._outcomes(part, rows)

    def _outcomes(self, part: WritePart, rows: list[asyncpg.Record]) -> list[Outcome]:
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
