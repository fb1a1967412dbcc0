"""One write transaction: what is known in it, what was judged by that, and what is to be written.

Everything is judged in Python against versions that were read in the same transaction, and written
in a few batches at its end. So many callers share one transaction, and one flush of the disk, and
none of them can be disturbed by a neighbour that is refused. A record that two commits of one
transaction change is judged the second time by what the first made of it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TypeAlias

from interlock.store.catalogue import Catalogue
from interlock.store.ranking import moment
from interlock.store.records import (
    Change,
    Commit,
    Committed,
    Conflict,
    Illegal,
    Note,
    Outcome,
    Record,
    Recorded,
    Refused,
    Repeated,
    Request,
    RequestReused,
    TooLate,
)
from interlock.store.sqlite.clock import HeldClock
from interlock.store.sqlite.rows import (
    INSERT_ENTRY,
    INSERT_RECORD,
    INSERT_REQUEST,
    REQUEST,
    UPDATE_RECORD,
    Row,
    list_text,
    recorded_of,
    row_of,
    row_of_note,
    row_of_recorded,
)

_PROGRESS = "SELECT max(sequence, ifnull((SELECT max(sequence) FROM journal), 0)), latest_us FROM progress"
_MOVE_ON = "UPDATE progress SET sequence = ?, latest_us = ?"
_LAST_NUMBER = "SELECT ifnull(max(number), 0) FROM records"
_ONE = "SELECT id, number, version, state FROM records WHERE kind = ? AND id = ?"
# CROSS JOIN holds the order: each name is looked up, however many records there are.
_MANY = (
    "SELECT r.id, r.number, r.version, r.state FROM json_each(?2) AS wanted"
    " CROSS JOIN records AS r ON r.kind = ?1 AND r.id = wanted.value"
)
_REQUESTS = f"SELECT {REQUEST} FROM requests WHERE id IN (SELECT value FROM json_each(?))"

Known: TypeAlias = dict[tuple[str, str], tuple[int, int, str]]
"""Number, version and state of records; all empty for one that is not there."""

_ABSENT = (0, 0, "")


class Memory:
    """What a writer may go on knowing from one transaction to the next.

    SQLite tells a connection whether any other has committed since; as long as none has, what this one
    read or wrote is how it is. It spares reading a record that was claimed a moment ago.
    """

    def __init__(self, most: int = 20_000) -> None:
        self._most = most
        self._seen = -1
        self._known: Known = {}

    def recall(self, connection: sqlite3.Connection) -> Known:
        """What is still true; asked in a transaction, so that it stays true to its end."""
        (seen,) = connection.execute("PRAGMA data_version").fetchone()
        if seen != self._seen or len(self._known) > self._most:
            self._known.clear()
            self._seen = seen
        return self._known

    def forget(self) -> None:
        """What was written has been undone."""
        self._known.clear()


class Ledger:
    """What happens between BEGIN and COMMIT."""

    def __init__(
        self, connection: sqlite3.Connection, catalogue: Catalogue, clock: HeldClock, memory: Memory
    ) -> None:
        self.connection = connection
        self.catalogue = catalogue
        self._sequence, latest_us = connection.execute(_PROGRESS).fetchone()
        self.now_us = clock.read(latest_us)
        self.now = moment(self.now_us)
        self.wrote = False
        self.broken = False
        """Data that cannot be kept ended a judgement half-way: the transaction has to be given up."""
        self._committed = Committed(self.now)
        self._last_number: int | None = None
        self._known = memory.recall(connection)
        self._requests: dict[str, Recorded | None] = {}
        self._forget_pending()

    def judge(self, commits: Sequence[Commit]) -> list[Outcome]:
        """Whether each can become true; those that can are remembered, to be written by `flush`."""
        self.broken = True
        self._learn(commits)
        outcomes = [self._judge_one(commit) for commit in commits]
        self.broken = False
        return outcomes

    def take(self, numbered: Iterable[tuple[int, Record]]) -> None:
        """These were read in this transaction, and need not be read again."""
        for number, record in numbered:
            self._known[record.kind, record.id] = (number, record.version, record.state)

    def flush(self) -> None:
        """Write what was judged. Created records come first: later commits may have changed them."""
        if not (self._created or self._changed or self._entries or self._recorded):
            return
        self.wrote = True
        for statement, rows in (
            (INSERT_RECORD, self._created),
            (UPDATE_RECORD, self._changed),
            (INSERT_ENTRY, self._entries),
            (INSERT_REQUEST, self._recorded),
        ):
            if rows:
                self.connection.executemany(statement, rows)
        self.connection.execute(_MOVE_ON, (self._sequence, self.now_us))
        self._forget_pending()

    def forget(self) -> None:
        """Something was changed behind this ledger's back."""
        self.wrote = True
        self._known.clear()
        self._requests.clear()

    def _forget_pending(self) -> None:
        self._created: list[Row] = []
        self._changed: list[Row] = []
        self._entries: list[Row] = []
        self._recorded: list[Row] = []

    def _learn(self, commits: Sequence[Commit]) -> None:
        wanted: dict[str, dict[str, None]] = {}
        requests: list[str] = []
        for commit in commits:
            touched: tuple[Change | Refused, ...] = commit.changes
            if commit.refusals:
                touched += commit.refusals
            for item in touched:
                if (item.kind, item.id) not in self._known:
                    wanted.setdefault(item.kind, {})[item.id] = None
            if commit.request is not None and commit.request.id not in self._requests:
                requests.append(commit.request.id)
        for kind, names in wanted.items():
            self._learn_records(kind, list(names))
        if requests:
            self._requests.update(dict.fromkeys(requests))
            for row in self.connection.execute(_REQUESTS, (list_text(requests),)):
                self._requests[row[0]] = recorded_of(row)

    def _learn_records(self, kind: str, names: list[str]) -> None:
        for name in names:
            self._known[kind, name] = _ABSENT
        one = len(names) == 1
        found = self.connection.execute(_ONE if one else _MANY, (kind, names[0] if one else list_text(names)))
        for name, number, version, state in found:
            self._known[kind, name] = (number, version, state)

    def _judge_one(self, commit: Commit) -> Outcome:
        request, not_after = commit.request, commit.not_after
        if request is not None and (repeat := self._repeat(request)) is not None:
            return repeat
        if not_after is not None and self.now > not_after:
            return TooLate(not_after, self.now)
        if (refusal := self._why_not(commit.changes)) is not None:
            return refusal
        for change in commit.changes:
            self._write(change)
        for refused in commit.refusals:
            version = self._known[refused.kind, refused.id][1]
            self._note(refused.kind, refused.id, version, refused.note, "")
        if request is not None:
            recorded = self._requests[request.id] = self._record(request)
            self._recorded.append(row_of_recorded(recorded))
        return self._committed

    def _repeat(self, request: Request) -> Outcome | None:
        found = self._requests[request.id]
        if found is None or found.expires_at <= self.now:
            return None
        same = found.fingerprint == request.fingerprint
        return Repeated(found) if same else RequestReused(found, request.fingerprint)

    def _why_not(self, changes: Sequence[Change]) -> Conflict | Illegal | None:
        """A conflict anywhere comes before an illegal step: it was decided on something outdated."""
        illegal: Illegal | None = None
        for change in changes:
            _, version, state = self._known[change.kind, change.id]
            if version != change.expected:
                return Conflict(change.key, change.expected, version)
            if illegal is None and not self.catalogue[change.kind].allows(state, change.state):
                illegal = Illegal(change.key, state, change.state)
        return illegal

    def _write(self, change: Change) -> None:
        key = change.kind, change.id
        number, version, _ = self._known[key]
        if number:
            self._changed.append(row_of(change, number, self.now_us))
        else:
            number = self._next_number()
            self._created.append((*row_of(change, number, self.now_us), *key, self.now_us))
        self._known[key] = (number, version + 1, change.state)
        if change.note is not None:
            self._note(*key, version + 1, change.note, change.chain)

    def _record(self, request: Request) -> Recorded:
        return Recorded(
            id=request.id,
            endpoint=request.endpoint,
            fingerprint=request.fingerprint,
            answer=request.answer,
            created_at=self.now,
            expires_at=self.now + timedelta(seconds=request.ttl_s),
        )

    def _note(self, kind: str, name: str, version: int, note: Note, chain: str) -> None:
        self._sequence += 1
        self._entries.append(row_of_note(self._sequence, self.now_us, kind, name, version, note, chain))

    def _next_number(self) -> int:
        if self._last_number is None:
            (self._last_number,) = self.connection.execute(_LAST_NUMBER).fetchone()
        self._last_number += 1
        return self._last_number
