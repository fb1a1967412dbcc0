"""Commits as the arguments of one call of `write_wave`, and its answer as outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import attrgetter, itemgetter
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

Held: TypeAlias = Mapping[tuple[str, str], Record]
"""By kind and id."""

_Column: TypeAlias = tuple[str | None, str | None]
"""What all changes share, or else the values of all in one text."""

_NOTHING: _Column = (None, None)

_ORDER = ("repeated", "late", "stale", "illegal")
"""What is judged first counts first."""


class Wave:
    """Commits of which no two touch the same record or request.

    `held` are records that are known to be in the version that these expect: where a body is the very
    same object, it stays as it is, and need not be sent.
    """

    def __init__(self, commits: Sequence[Commit], held: Held | None = None) -> None:
        self._commits = commits
        self._held = held
        # In the order of keys, in which all lock. No two are the same, so nothing behind them is compared.
        keyed = sorted(
            [
                (change.kind, change.id, place, change)
                for place, commit in enumerate(commits)
                for change in commit.changes
            ]
        )
        self._changes = [(place, change) for _, _, place, change in keyed]
        self._limits = [(p, c.not_after) for p, c in enumerate(commits) if c.not_after is not None]
        self._requests = [(p, c.request) for p, c in enumerate(commits) if c.request is not None]

    def arguments(self, judging: bool, not_before: datetime) -> list[Any]:
        """The arguments of `write_wave`. Times cost the driver most: only a judge needs all limits."""
        changes = [change for _, change in self._changes]
        return [
            judging,
            not_before,
            _joined([change.id for change in changes]),
            _bodies(changes, self._held),
            *self._columns_and_notes(changes),
            *_columns(_refusals(self._commits), 4),
            min([limit for _, limit in self._limits], default=None),
            *_columns(self._limits if judging else [], 2),
            *_columns([(place, *_request_row(request)) for place, request in self._requests], 7),
        ]

    def _columns_and_notes(
        self, changes: Sequence[Change]
    ) -> tuple[str | None, list[str | None], list[str | None]]:
        """Notes, what all changes share, and what each has of its own: see `sql/0003_commit.sql`."""
        if not changes:
            return "", [], []
        one = changes[:1] if _are_alike(changes) else changes
        ready, ranks = _queueing(one)
        shared_note, notes = _notes([c.note for c in changes])
        columns = [
            *self._places(),
            _column([c.kind for c in one]),
            _numbers([c.expected for c in one]),
            _column([c.state for c in one]),
            _column([c.parent for c in one]),
            _column([c.queue for c in one]),
            _column([_BETWEEN_LABELS.join(c.labels) if c.labels else None for c in one]),
            _numbers([c.priority for c in one]),
            ready,
            ranks,
            _moments([c.deadline_at for c in one]),
            _column([c.chain for c in one]),
            _moments([c.expected_at for c in changes]),
        ]
        return notes, [*(shared for shared, _ in columns), shared_note], [varied for _, varied in columns]

    def _places(self) -> tuple[_Column, _Column]:
        """Whose each change is, and its position there; nothing where each commit has one, in order."""
        places = [place for place, _ in self._changes]
        if places == list(range(len(self._commits))):
            return _NOTHING, _NOTHING
        turns = [self._commits[place].changes.index(change) for place, change in self._changes]
        return _numbers(places), _numbers(turns)

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
                place, request = self._requests[item]
                recorded = recorded_of(row, request.id)
                same = recorded.fingerprint == request.fingerprint
                return place, 0, Repeated(recorded) if same else RequestReused(recorded, request.fingerprint)
            case "late":
                place, not_after = self._limits[item]
                return place, 0, TooLate(not_after, time)
            case "stale":
                place, change = self._changes[item]
                position = self._commits[place].changes.index(change)
                return place, position, Conflict(change.key, change.expected, row["found"])
            case _:
                place, change = self._changes[item]
                position = self._commits[place].changes.index(change)
                return place, position, Illegal(change.key, row["source"], change.state)


def _are_alike(changes: Sequence[Change]) -> bool:
    """Whether all say the same, in all columns but when that was written: then one of them speaks for all."""
    first, *others = changes
    looks = _looks_of(first)
    for change in others:  # noqa: SIM110 - a generator would cost more than the question
        if _looks_of(change) != looks:
            return False
    return True


_looks_of = attrgetter(
    *(
        "kind",
        "expected",
        "state",
        "parent",
        "queue",
        "labels",
        "priority",
        "ready_at",
        "deadline_at",
        "chain",
    )
)


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


def _bodies(changes: Sequence[Change], held: Held | None) -> str | None:
    """JSON does not hold the separator: a control character is escaped in it. '' stays as it is."""
    bodies = [change.body for change in changes]
    if held:
        before = [held.get((change.kind, change.id)) for change in changes]
        bodies = [
            b"" if record is not None and record.body is body else body
            for record, body in zip(before, bodies, strict=True)
        ]
        if not any(bodies):
            return None
    return _parted(_BETWEEN_VALUES.encode().join(bodies).decode(), len(changes))


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
