"""Commits as the arguments of one call of `write_wave`, and its answer as outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any, TypeAlias

import asyncpg
import msgspec

from interlock.errors import InvalidRecord
from interlock.store.postgres.rows import recorded_of
from interlock.store.ranking import microseconds, rank_of
from interlock.store.records import (
    Change,
    Commit,
    Committed,
    Conflict,
    Illegal,
    Note,
    Outcome,
    Record,
    Repeated,
    Request,
    RequestReused,
    TooLate,
)

_BETWEEN_VALUES, _BETWEEN_LABELS = "\x1e", "\x1f"
_encoder = msgspec.json.Encoder()

_Column: TypeAlias = tuple[str | None, str | None]
"""What all changes share, or else the values of all in one text."""

_NOTHING: _Column = (None, None)

_ORDER = ("repeated", "late", "stale", "illegal")
"""What is judged first counts first."""


class Wave:
    """Commits of which no two touch the same record or request.

    `held` are records that were read just now: where such a record is in the version that is expected, and
    a body is the very same object, it stays as it is, and need not be sent.
    """

    def __init__(self, commits: Sequence[Commit], held: Sequence[Record] = ()) -> None:
        self._commits = commits
        self._held = held
        self._changes, self._places = _in_the_order_of_keys(commits)

    def arguments(self, judging: bool, not_before: datetime) -> list[Any]:
        """The arguments of `write_wave`. Times cost the driver most: only a judge needs all limits."""
        limits, requests = self._limits(), self._requests()
        return [
            judging,
            not_before,
            _joined([change.id for change in self._changes]),
            _bodies(self._changes, self._held),
            *self._columns_and_notes(),
            *_columns(_refusals(self._commits), 4),
            min([limit for _, limit in limits], default=None),
            *_columns(limits if judging else [], 2),
            *_columns([(place, *_request_row(request)) for place, request in requests], 7),
        ]

    def arguments_alike(self, not_before: datetime) -> list[Any] | None:
        """Those of `write_alike`; None where that will not do."""
        commits, changes = self._commits, self._changes
        if self._places is not None or not changes or changes[0].expected == 0 or not _are_alike(changes):
            return None
        if [None for commit in commits if commit.refusals or commit.request is not None]:
            return None
        notes = [change.note for change in changes]
        if None in notes:
            return None
        shared_note, notes_of_all = _notes(notes)
        expected_at, moments = _moments([change.expected_at for change in changes])
        limits = {commit.not_after for commit in commits}
        return [
            not_before,
            min([limit for limit in limits if limit is not None], default=None),
            _joined([change.id for change in changes]),
            _bodies(changes, self._held),
            notes_of_all,
            moments,
            [*(shared for shared, _ in _columns_of(changes[:1])), expected_at, shared_note],
        ]

    def _limits(self) -> list[tuple[int, datetime]]:
        return [(p, c.not_after) for p, c in enumerate(self._commits) if c.not_after is not None]

    def _requests(self) -> list[tuple[int, Request]]:
        return [(p, c.request) for p, c in enumerate(self._commits) if c.request is not None]

    def _columns_and_notes(self) -> tuple[str | None, list[str | None], list[str | None]]:
        """Notes, what all changes share, and what each has of its own: see `sql/0003_commit.sql`."""
        changes = self._changes
        if not changes:
            return "", [], []
        shared_note, notes = _notes([change.note for change in changes])
        columns = [
            *self._places_and_turns(),
            *_columns_of(changes[:1] if _are_alike(changes) else changes),
            _moments([change.expected_at for change in changes]),
        ]
        return notes, [*(shared for shared, _ in columns), shared_note], [varied for _, varied in columns]

    def _places_and_turns(self) -> tuple[_Column, _Column]:
        """Whose each change is, and its position there; nothing where each commit has one, in order."""
        if self._places is None:
            return _NOTHING, _NOTHING
        turns = [
            self._commits[place].changes.index(change)
            for place, change in zip(self._places, self._changes, strict=True)
        ]
        return _numbers(self._places), _numbers(turns)

    def outcomes(self, rows: Sequence[asyncpg.Record]) -> list[Outcome]:
        """What became of each commit. Rows other than the first tell what stood in the way."""
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
        """Which commit it is about, which of its changes, and what it comes to. SQL counts from 1."""
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
        """Whose change that is, and which of its changes."""
        if self._places is None:
            return item, 0
        place = self._places[item]
        return place, self._commits[place].changes.index(self._changes[item])


def _in_the_order_of_keys(commits: Sequence[Commit]) -> tuple[list[Change], list[int] | None]:
    """All changes in the order in which all lock, and whose they are; None where each has one, in order."""
    singles = [commit.changes[0] for commit in commits if len(commit.changes) == 1]
    if len(singles) == len(commits):
        ids = [change.id for change in singles]
        if ids == sorted(ids) and len({change.kind for change in singles}) == 1:
            return singles, None
    keyed = sorted(  # no two keys are the same, so nothing behind them is compared
        [
            (change.kind, change.id, place, change)
            for place, commit in enumerate(commits)
            for change in commit.changes
        ]
    )
    return [change for *_, change in keyed], [place for _, _, place, _ in keyed]


def _columns_of(changes: Sequence[Change]) -> list[_Column]:
    """What the changes say, but for ids, bodies and notes, and when the expected version was written."""
    ready, ranks = _queueing(changes)
    return [
        _column([c.kind for c in changes]),
        _numbers([c.expected for c in changes]),
        _column([c.state for c in changes]),
        _column([c.parent for c in changes]),
        _column([c.queue for c in changes]),
        _column([_BETWEEN_LABELS.join(c.labels) if c.labels else None for c in changes]),
        _numbers([c.priority for c in changes]),
        ready,
        ranks,
        _moments([c.deadline_at for c in changes]),
        _column([c.chain for c in changes]),
    ]


def _are_alike(changes: Sequence[Change]) -> bool:
    """Whether all say the same, in all columns but when that was written: then one of them speaks for all."""
    c = changes[0]
    first = (
        c.kind,
        c.expected,
        c.state,
        c.parent,
        c.queue,
        c.labels,
        c.priority,
        c.ready_at,
        c.deadline_at,
        c.chain,
    )
    for c in changes:
        # Spelled out: the same by way of a function costs twice as much, and it is asked of every change.
        looks = (
            c.kind,
            c.expected,
            c.state,
            c.parent,
            c.queue,
            c.labels,
            c.priority,
            c.ready_at,
            c.deadline_at,
            c.chain,
        )
        if looks != first:
            return False
    return True


def _notes(notes: Sequence[Note | None]) -> tuple[str | None, str | None]:
    """The note that all share, or else a line for each."""
    first = notes[0]
    if first is not None and notes.count(first) == len(notes):
        return _encoder.encode(first).decode(), None
    return None, _encoder.encode_lines(notes)[:-1].decode()


def _column(values: Sequence[str | None]) -> _Column:
    first = values[0]
    if values.count(first) == len(values):
        return first and _joined([first]), None
    return None, _joined(["" if value is None else value for value in values])


def _numbers(values: list[int]) -> _Column:
    first = values[0]
    if values.count(first) == len(values):
        return str(first), None
    return None, _BETWEEN_VALUES.join(map(str, values))


def _moments(values: list[datetime | None]) -> _Column:
    first = values[0]
    if values.count(first) == len(values):
        return None if first is None else str(microseconds(first)), None
    return None, _BETWEEN_VALUES.join(["" if at is None else str(microseconds(at)) for at in values])


def _queueing(changes: Sequence[Change]) -> tuple[_Column, _Column]:
    """When they are ready, and their ranks, which are the same where nobody is preferred."""
    ready_at = _moments([c.ready_at for c in changes])
    if ready_at == _NOTHING or not any(c.priority for c in changes):
        return ready_at, ready_at
    ranks = [None if c.ready_at is None else str(rank_of(c.ready_at, c.priority)) for c in changes]
    return ready_at, _column(ranks)


def _bodies(changes: Sequence[Change], held: Sequence[Record]) -> str | None:
    """JSON does not hold the separator: a control character is escaped in it. '' stays as it is."""
    bodies = [change.body for change in changes]
    if held:
        if _is_all_kept(changes, held):
            return None
        before = {(record.kind, record.id, record.version): record.body for record in held}
        bodies = [b"" if before.get((c.kind, c.id, c.expected)) is c.body else c.body for c in changes]
    return _parted(_BETWEEN_VALUES.encode().join(bodies).decode(), len(changes))


def _is_all_kept(changes: Sequence[Change], held: Sequence[Record]) -> bool:
    """Whether just these records are changed, in their order, and no body is: the commonest of claims."""
    if len(held) != len(changes):
        return False
    for c, r in zip(changes, held, strict=True):
        if c.body is not r.body or c.id != r.id or c.expected != r.version or c.kind != r.kind:
            return False
    return True


def _joined(values: Sequence[str]) -> str:
    return _parted(_BETWEEN_VALUES.join(values), len(values))


def _parted(text: str, parts: int) -> str:
    """See that a text comes apart again into as many parts as it was made of."""
    if text.count(_BETWEEN_VALUES) >= max(parts, 1):
        raise InvalidRecord(
            "PostgreSQL cannot keep this: the control character U+001E.",
            todo="Leave it out, or escape it where it is part of a body. Nothing was written.",
        )
    return text


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
