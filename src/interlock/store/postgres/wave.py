"""Commits as the arrays of one call of `commit_wave`, and its answer as outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any

import asyncpg
import msgspec

from interlock.store.postgres.rows import recorded_of
from interlock.store.ranking import rank_of
from interlock.store.records import (
    Change,
    Commit,
    Committed,
    Conflict,
    Illegal,
    Note,
    Outcome,
    Repeated,
    Request,
    RequestReused,
    TooLate,
)

_SEPARATOR = "\x1f"
_encode = msgspec.json.Encoder().encode

_ORDER = ("repeated", "late", "stale", "illegal")
"""What is judged first counts first."""


class Wave:
    """Commits of which no two touch the same record or request."""

    def __init__(self, commits: Sequence[Commit]) -> None:
        self._commits = commits
        changes = [(place, change) for place, commit in enumerate(commits) for change in commit.changes]
        # In the order of keys, in which all lock.
        changes.sort(key=lambda item: (item[1].kind, item[1].id))
        self._changes = changes
        self._limits = [(p, c.not_after) for p, c in enumerate(commits) if c.not_after is not None]
        self._requests = [(p, c.request) for p, c in enumerate(commits) if c.request is not None]

    def arguments(self, not_before: datetime) -> list[Any]:
        """The arguments of `commit_wave`."""
        changes = [change for _, change in self._changes]
        return [
            not_before,
            [place for place, _ in self._changes],
            self._turns(),
            *_change_columns(changes),
            *_columns(_refusals(self._commits), 4),
            *_columns(self._limits, 2),
            *_columns([(place, *_request_row(request)) for place, request in self._requests], 7),
        ]

    def _turns(self) -> list[int]:
        """The position of each change in its commit; nothing where each commit has one at most."""
        if len({place for place, _ in self._changes}) == len(self._changes):
            return []
        return [self._commits[place].changes.index(change) for place, change in self._changes]

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


def _change_columns(changes: Sequence[Change]) -> list[list[Any]]:
    """A column that nobody uses is sent empty: the driver's work is in the number of elements."""
    return [
        [c.kind for c in changes],
        [c.id for c in changes],
        [c.expected for c in changes],
        [c.state for c in changes],
        [c.body.decode() for c in changes],
        _used([c.parent for c in changes]),
        _used([c.queue for c in changes]),
        _used([_SEPARATOR.join(c.labels) if c.labels else None for c in changes]),
        _used([c.priority or None for c in changes]),
        _used([None if c.ready_at is None else rank_of(c.ready_at, c.priority) for c in changes]),
        _used([c.ready_at for c in changes]),
        _used([c.deadline_at for c in changes]),
        _used([c.chain or None for c in changes]),
        _used([None if c.note is None else _text(c.note) for c in changes]),
    ]


def _used(column: list[Any]) -> list[Any]:
    return column if column.count(None) < len(column) else []


def _refusals(commits: Sequence[Commit]) -> list[tuple[int, str, str, str]]:
    return [
        (place, refused.kind, refused.id, _text(refused.note))
        for place, commit in enumerate(commits)
        for refused in commit.refusals
    ]


def _text(note: Note) -> str:
    return _encode(note).decode()


def _request_row(request: Request) -> tuple[str, str, str, int, bytes, float]:
    answer = request.answer
    return request.id, request.endpoint, request.fingerprint, answer.status, answer.body, request.ttl_s


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]
