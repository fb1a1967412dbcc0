"""One write transaction: what is known in it, and what was judged by that.

Everything is judged in Python against versions that were read in the same transaction, and written
in a few batches at its end. So many callers share one transaction, and one flush of the disk, and
none of them can be disturbed by a neighbour that is refused. A record that two commits of one
transaction change is judged the second time by what the first made of it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice

from interlock.store.glancing import looks_of
from interlock.store.ranking import moment
from interlock.store.records import (
    Change,
    Commit,
    Committed,
    Conflict,
    Illegal,
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
from interlock.store.sqlite.knowing import Memory, Standing, keep, look_up
from interlock.store.sqlite.pending import Moved, Pending
from interlock.store.sqlite.rows import list_text, recorded_of, row_of_recorded
from interlock.store.sqlite.shapes import REQUEST

_PROGRESS = "SELECT max(sequence, ifnull((SELECT max(sequence) FROM journal), 0)), latest_us FROM progress"
_MOVE_ON = "UPDATE progress SET sequence = ?, latest_us = ?"
_REQUESTS = f"SELECT {REQUEST} FROM requests WHERE id IN (SELECT value FROM json_each(?))"


Moves = Mapping[str, Mapping[tuple[str, str], Moved]]
"""By kind, and by the states that a legal step joins; the first of them is empty for a creation."""


class Ledger:
    """What happens between BEGIN and COMMIT."""

    def __init__(
        self, connection: sqlite3.Connection, moves: Moves, clock: HeldClock, memory: Memory
    ) -> None:
        self.connection = connection
        self.wrote = False
        self.broken = False
        """Data that cannot be kept ended a judgement half-way: the transaction has to be given up."""
        self._moves = moves
        self._memory = memory
        self._known = memory.recall(connection)
        self._requests: dict[str, Recorded | None] = {}
        self._commits: Sequence[Commit] = ()
        self._taken: Sequence[tuple[int, Record]] = ()
        self._bodies: dict[int, int] = {}
        """Whose they are, by their identity, of what was taken: the same one need not be written again."""
        self._sequence, latest_us = connection.execute(_PROGRESS).fetchone()
        # Later than all before: records are listed by their numbers, and so by the time of their creation.
        self._begin_batch(clock.read(latest_us + 1))

    def judge(self, commits: Sequence[Commit]) -> list[Outcome]:
        """Whether each can become true; those that can are remembered, to be written by `flush`."""
        self.broken = True
        self._commits = commits
        outcomes: list[Outcome] = []
        while len(outcomes) < len(commits):
            commit = commits[len(outcomes)]
            if not _is_one_change(commit):
                outcomes.append(self._judge_one(commit))
                continue
            change = commit.changes[0]
            before = self._known[change.kind].get(change.id) or self._standing(change)
            outcomes.append(self._judge_alone(change, before, commit.not_after))
            if outcomes[-1] is self._committed and self._may_lead(change, before):
                followers = self._follow(commit, before, islice(commits, len(outcomes), None))
                outcomes += [self._committed] * followers
        self.broken = False
        return outcomes

    def _may_lead(self, change: Change, before: Standing) -> bool:
        """Whether others can do the same: it was there, is changed once, and its entry can be shared."""
        note = change.note
        return bool(before[0]) and before[6] is not self.now and not (note and note.refusal)

    def _follow(self, leader: Commit, stood: Standing, others: Iterable[Commit]) -> int:
        """How many of the next ones do what this one did, from where it stood: they are let through with it.

        Nearly all of a batch do. What was judged is compared, and judged only where something differs.
        """
        first, not_after, now, bodies = leader.changes[0], leader.not_after, self.now, self._bodies
        kind, note, version, was = first.kind, first.note, first.expected + 1, stood[1:6]
        keeps_body = bodies.get(id(first.body)) == stood[0]
        looks = looks_of(first)
        standings, alike = self._known[kind], self._pending.alike()
        number_of, body_of, say = alike.numbers.append, alike.bodies.append, alike.said.append
        after = alike.after
        followers = 0
        for commit in others:
            changes = commit.changes
            if (
                len(changes) != 1
                or commit.request is not None
                or commit.refusals
                or commit.not_after != not_after
            ):
                break
            change = changes[0]
            before = standings.get(change.id)
            if (
                before is None
                or before[1:6] != was
                or before[6] is now
                or looks_of(change) != looks
                or change.note != note
                or (change.expected_at is not None and change.expected_at != before[6])
                or (bodies.get(id(change.body)) == before[0]) is not keeps_body
            ):
                break
            number = before[0]
            number_of(number)
            if not keeps_body:
                body_of(change.body)
            if note is not None:
                say((number, kind, change.id, version))
            standings[change.id] = (number, *after)
            followers += 1
        if note is not None:
            self._sequence += followers
        return followers

    def take(self, numbered: Sequence[tuple[int, Record]]) -> None:
        """These were read in this transaction, and need not be read again."""
        keep(numbered, self._known)
        self._taken = numbered  # no other body gets the identity of one of these while they are here
        self._bodies = {id(record.body): number for number, record in numbered}

    def flush(self) -> None:
        """Write what was judged."""
        pending = self._pending
        if pending:
            self.wrote = True
            pending.write(self._known)
            self._bodies = {}
            self.connection.execute(_MOVE_ON, (self._sequence, self.now_us))
            self._begin_batch(self.now_us + pending.creates)

    def forget(self) -> None:
        """Something was changed behind this ledger's back."""
        self.wrote = True
        self._memory.forget()
        self._requests.clear()

    def _begin_batch(self, now_us: int) -> None:
        self.now_us = now_us
        self.now = moment(now_us)
        self._committed = Committed(self.now)
        self._pending = Pending(self.connection, now_us, self.now)

    def _judge_one(self, commit: Commit) -> Outcome:
        request, not_after, changes = commit.request, commit.not_after, commit.changes
        if request is not None and (repeat := self._repeat(request)) is not None:
            return repeat
        if not_after is not None and self.now > not_after:
            return TooLate(not_after, self.now)
        if (refusal := self._why_not(changes)) is not None:
            return refusal
        for change in changes:
            self._write(change)
        for refused in commit.refusals:
            number, version, *_ = self._standing(refused)
            self._sequence += 1
            said = (number, refused.kind, refused.id, version)
            self._pending.entries.add(self._sequence, said, refused.note)
        if request is not None:
            recorded = self._requests[request.id] = self._record(request)
            self._pending.recorded.append(row_of_recorded(recorded))
        return self._committed

    def _judge_alone(self, change: Change, before: Standing, not_after: datetime | None) -> Outcome:
        """The same for a commit that is one change and nothing else, as nearly all are: each thing once."""
        if not_after is not None and self.now > not_after:
            return TooLate(not_after, self.now)
        if before[1] != change.expected or change.expected_at not in (None, before[6]):
            return Conflict(change.key, change.expected, before[1])
        moved = self._moves[change.kind].get((before[2], change.state))
        if moved is None:
            return Illegal(change.key, before[2], change.state)
        self._put(change, before, moved)
        return self._committed

    def _repeat(self, request: Request) -> Outcome | None:
        if request.id not in self._requests:
            self._learn_requests()
        found = self._requests[request.id]
        if found is None or found.expires_at <= self.now:
            return None
        same = found.fingerprint == request.fingerprint
        return Repeated(found) if same else RequestReused(found, request.fingerprint)

    def _why_not(self, changes: Sequence[Change]) -> Conflict | Illegal | None:
        """A conflict anywhere comes before an illegal step: it was decided on something outdated."""
        illegal: Illegal | None = None
        for change in changes:
            kind = change.kind
            _, version, state, _, _, _, since = self._known[kind].get(change.id) or self._standing(change)
            if version != change.expected or change.expected_at not in (None, since):
                return Conflict(change.key, change.expected, version)
            if illegal is None and (state, change.state) not in self._moves[kind]:
                illegal = Illegal(change.key, state, change.state)
        return illegal

    def _write(self, change: Change) -> None:
        before = self._known[change.kind][change.id]
        self._put(change, before, self._moves[change.kind][before[2], change.state])

    def _put(self, change: Change, before: Standing, moved: Moved) -> None:
        kind, name, pending = change.kind, change.id, self._pending
        if before[0]:
            bodies = self._bodies
            kept = bodies.get(id(change.body)) == before[0] and before[6] is not self.now
            after = pending.change(change, before, moved, bodied=not kept)
        else:
            after = pending.create(change, moved)
        self._known[kind][name] = after
        if (note := change.note) is not None:
            self._sequence += 1
            said = (after[0], kind, name, after[1])
            if note.refusal:
                pending.entries.add(self._sequence, said, note)
            else:
                pending.entries.say(self._sequence, said, note)

    def _standing(self, item: Change | Refused) -> Standing:
        """How a record stands; the first that is not known makes all of this call known."""
        found = self._known[item.kind].get(item.id)
        if found is None:
            self._learn_records()
            found = self._known[item.kind][item.id]
        return found

    def _learn_records(self) -> None:
        wanted: dict[str, dict[str, None]] = {}
        for commit in self._commits:
            touched: tuple[Change | Refused, ...] = (*commit.changes, *commit.refusals)
            for item in touched:
                if item.id not in self._known[item.kind]:
                    wanted.setdefault(item.kind, {})[item.id] = None
        for kind, names in wanted.items():
            look_up(self.connection, kind, list(names), self._known[kind])

    def _learn_requests(self) -> None:
        asked = [commit.request.id for commit in self._commits if commit.request is not None]
        unknown = [name for name in asked if name not in self._requests]
        self._requests.update(dict.fromkeys(unknown))
        for row in self.connection.execute(_REQUESTS, (list_text(unknown),)):
            self._requests[row[0]] = recorded_of(row)

    def _record(self, request: Request) -> Recorded:
        return Recorded(
            id=request.id,
            endpoint=request.endpoint,
            fingerprint=request.fingerprint,
            answer=request.answer,
            created_at=self.now,
            expires_at=self.now + timedelta(seconds=request.ttl_s),
        )


def _is_one_change(commit: Commit) -> bool:
    """And nothing else."""
    return len(commit.changes) == 1 and commit.request is None and not commit.refusals
