"""A batch as the arguments of one call of `write_batch`, and its answer as outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar

import asyncpg
import msgspec

from interlock.store.postgres.columns import END, Ends, is_end, joined, joined_data, labels_as_text, moments
from interlock.store.postgres.wave import Statement, Wave
from interlock.store.ranking import microseconds, rank_of
from interlock.store.records import Batch, Change, Commit, Committed, Outcome

T = TypeVar("T")

_encoder = msgspec.json.Encoder()


class BatchPart:
    """One change of some records, none of which comes twice. Where some conflict it is judged as a wave."""

    def __init__(self, ends: Ends, batch: Batch) -> None:
        self._ends = ends
        self._batch = batch
        self.channel: str | None = None
        """Where the commit itself tells others of it; None if it does not."""

    @property
    def number(self) -> int:
        """How many records it changes."""
        return len(self._batch.ids)

    def trial(self, not_before: datetime) -> Statement:
        """Write all of it, or nothing, in which case there is no answer."""
        return "try_batch" if self.number > 1 else "try_one", self._arguments(not_before)

    def judged(self, not_before: datetime) -> Statement:
        """Write what can be written, and tell what stood in the way of the rest."""
        self.channel = None
        return self._wave().judged(not_before)

    def within(self, judging: bool, not_before: datetime) -> Statement:
        """The same in a transaction that goes on; what is not judged raises where something is in the way."""
        if judging:
            return self._wave().within(judging, not_before)
        return "write_batch", self._arguments(not_before)

    def outcomes(self, rows: Sequence[asyncpg.Record]) -> list[Outcome]:
        """What became of each record."""
        if len(rows) > 1:
            return self._wave().outcomes(rows)
        return [Committed(rows[0]["at"])] * len(self._batch.ids)

    def _wave(self) -> Wave:
        return Wave(self._ends, self._batch.commits())

    def _arguments(self, not_before: datetime) -> list[object]:
        """See `sql/0014_batch.sql`. Records are locked by key, and told of in the order of the batch."""
        batch, told = self._batch, None
        ids, seen, given, results = batch.ids, batch.expected_at, batch.given, batch.result
        order = sorted(range(len(ids)), key=ids.__getitem__)
        if order != list(range(len(ids))):
            told = joined(ids)
            ids, seen = _in(order, ids), _in(order, seen)
            given, results = _in(order, given), _in(order, results)
        expected_at, written_at = moments(seen) if seen else (None, None)
        return [
            not_before,
            batch.not_after,
            joined(ids),
            told,
            joined_data(given) if given else None,
            joined_data(results) if results else None,
            written_at,
            [*_said(batch.change, self._ends), expected_at, self.channel],
        ]


def _in(order: Sequence[int], column: tuple[T, ...]) -> tuple[T, ...]:
    return tuple([column[place] for place in order]) if column else ()


def batch_of(commit: Commit) -> Batch | None:
    """Return a commit that changes one record, and nothing else, as a batch."""
    if len(commit.changes) != 1 or commit.refusals or commit.request is not None:
        return None
    change = commit.changes[0]
    if change.result == b"":
        return None  # which removes a result: a batch cannot say so
    return Batch(
        change=msgspec.structs.replace(change, id="", expected_at=None, given=None, result=None),
        ids=(change.id,),
        expected_at=(change.expected_at,),
        given=(change.given,) if change.given else (),
        result=(change.result,) if change.result is not None else (),
        not_after=commit.not_after,
    )


def _said(change: Change, ends: Ends) -> list[str | None]:
    """What all records of a batch share."""
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
