"""Commits as the arguments of one call of `write_wave`, and its answer as outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any, TypeAlias

import asyncpg
import msgspec

from interlock.store.postgres.columns import (
    NOTHING,
    Column,
    Ends,
    bodies_of,
    columns_of,
    ends_of,
    given_of,
    handlers_of,
    joined,
    moments,
    notes_of,
    numbers,
    results_of,
)
from interlock.store.postgres.rows import recorded_of
from interlock.store.records import (
    Change,
    Commit,
    Committed,
    Conflict,
    Illegal,
    Outcome,
    Record,
    Repeated,
    Request,
    RequestReused,
    TooLate,
)

_encoder = msgspec.json.Encoder()

Statement: TypeAlias = tuple[str, list[Any]]
"""The name of a statement, and its arguments."""

_ORDER = ("repeated", "late", "stale", "illegal")
"""What is judged first counts first."""


class Wave:
    """Commits of which no two touch the same record or request.

    `held` are records that were read just now: where such a record is in the version that is expected, and
    a body is the very same object, it stays as it is, and need not be sent.
    """

    def __init__(self, ends: Ends, commits: Sequence[Commit], held: Sequence[Record] = ()) -> None:
        self._ends = ends
        self._commits = commits
        self._held = held
        self._changes, self._places = _in_the_order_of_keys(commits)

    def arguments(self, judging: bool, not_before: datetime) -> list[Any]:
        """The arguments of `write_wave`. Times cost the driver most: only a judge needs all limits."""
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
        """Write all of it, or nothing, in which case there is no answer."""
        return "try_wave", self.arguments(False, not_before)[1:]

    def judged(self, not_before: datetime) -> Statement:
        """Write what can be written, and tell what stood in the way of the rest."""
        return "judge", self.arguments(True, not_before)[1:]

    def within(self, judging: bool, not_before: datetime) -> Statement:
        """The same in a transaction that goes on; what is not judged raises where something is in the way."""
        return "write", self.arguments(judging, not_before)

    def _limits(self) -> list[tuple[int, datetime]]:
        return [(p, c.not_after) for p, c in enumerate(self._commits) if c.not_after is not None]

    def _requests(self) -> list[tuple[int, Request]]:
        return [(p, c.request) for p, c in enumerate(self._commits) if c.request is not None]

    def _columns_and_notes(self) -> tuple[str | None, list[str | None], list[str | None]]:
        """Notes, what all changes share, and what each has of its own: see `sql/0015_commit.sql`."""
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
        """Whose each change is, and its position there; nothing where each commit has one, in order."""
        if self._places is None:
            return NOTHING, NOTHING
        turns = [
            self._commits[place].changes.index(change)
            for place, change in zip(self._places, self._changes, strict=True)
        ]
        return numbers(self._places), numbers(turns)

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
