"""Commits that touch different records, as the arguments of one call, and its answer as outcomes.

See `commits`, `sql/0015_commit.sql` and `sql/0022_plain.sql`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter, itemgetter
from typing import Any, TypeAlias

import asyncpg
import msgspec

from interlock.store.postgres.columns import (
    NOTHING,
    Column,
    TerminalStates,
    bodies_of,
    columns_of,
    ends_of,
    given_of,
    handlers_of,
    joined,
    joined_data,
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

NamedStatement: TypeAlias = tuple[str, list[Any]]
"""The name of a statement, and its arguments."""

_ORDER = ("repeated", "late", "stale", "illegal")
"""Precedence of obstacles."""


class Wave:
    """Commits of which no two touch the same record or request.

    `held` are records that were just read: if such a record has the expected version and its body is the same
    object, the body is unchanged and need not be sent.
    """

    def __init__(self, ends: TerminalStates, commits: Sequence[Commit], held: Sequence[Record] = ()) -> None:
        self._ends = ends
        self._commits = commits
        self._held = held
        self._changes, self._places, self._turns = _in_the_order_of_keys(commits)

    def arguments(self, judging: bool, not_before: datetime) -> list[Any]:
        """Return the arguments of `write_wave`.

        Times are expensive for the driver: only a judgement needs all limits.
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

    def trial(self, not_before: datetime) -> NamedStatement:
        """Return the statement that writes everything or nothing.

        In the latter case there is no answer.
        """
        return "try_wave", self.arguments(False, not_before)[1:]

    def judged(self, not_before: datetime) -> NamedStatement:
        """Return the statement that writes the possible changes.

        It reports the obstacles of the rest.
        """
        return "judge", self.arguments(True, not_before)[1:]

    def within(self, judging: bool, not_before: datetime) -> NamedStatement:
        """Return the statement for an open transaction.

        Without `judging`, an obstacle raises.
        """
        return "write", self.arguments(judging, not_before)

    def _limits(self) -> list[tuple[int, datetime]]:
        return [(p, c.not_after) for p, c in enumerate(self._commits) if c.not_after is not None]

    def _requests(self) -> list[tuple[int, Request]]:
        return [(p, c.request) for p, c in enumerate(self._commits) if c.request is not None]

    def _columns_and_notes(self) -> tuple[str | None, list[str | None], list[str | None]]:
        """Return the shared note, shared values and columns of the changes.

        See `sql/0015_commit.sql`.
        """
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
        """Return the commit and the position of each change.

        Both are empty if each commit has one change, in order.
        """
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
        """Return the commit of an obstacle, its change, and the outcome.

        SQL counts from 1.
        """
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
        ends: TerminalStates,
        commit: Commit,
        first: Sequence[Change],
        plain: Sequence[Change],
        held: Sequence[Record],
    ) -> None:
        super().__init__(ends, [msgspec.structs.replace(commit, changes=tuple(first))], held)
        self._commit = commit
        self._plain = plain

    def trial(self, not_before: datetime) -> NamedStatement:
        """Return the statement that writes everything or nothing.

        In the latter case there is no answer.
        """
        plain = sorted(
            self._plain, key=attrgetter("id")
        )  # of two that create the same, one waits for the other
        ids, bodies = joined([each.id for each in plain]), joined_data([each.body for each in plain])
        of_kind, to_state = plain[0].kind, plain[0].state
        return "try_with_plain", [*super().trial(not_before)[1], of_kind, to_state, ids, bodies]

    def judged(self, not_before: datetime) -> NamedStatement:
        """Return the statement that writes the possible changes.

        It reports the obstacles of the rest.
        """
        return self._whole().judged(not_before)

    def within(self, judging: bool, not_before: datetime) -> NamedStatement:
        """Return the statement for an open transaction.

        Without `judging`, an obstacle raises.
        """
        return self._whole().within(judging, not_before)

    def outcomes(self, rows: Sequence[asyncpg.Record]) -> list[Outcome]:
        """Return the outcome of the commit."""
        return [Committed(rows[0]["at"])] if len(rows) == 1 else self._whole().outcomes(rows)

    def _whole(self) -> Wave:
        return Wave(self._ends, [self._commit], self._held)


def _in_the_order_of_keys(commits: Sequence[Commit]) -> tuple[list[Change], list[int] | None, list[int]]:
    """Return all changes in lock order, with their commits and positions.

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
