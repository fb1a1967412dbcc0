"""One write transaction: commits are judged, and old records are pruned.

Commits are judged in Python against versions that were read in the same transaction, and written in a few
statements at its end. So many callers share one transaction, and one flush of the disk, and a refused commit
does not affect others. A record that two commits of one transaction change is judged the second time by the
result of the first.

Pruning removes records that ended long ago, with their journal, a bounded batch at a time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple, TypeAlias

from interlock.store.cursors import write_cursor
from interlock.store.plain_changes import split_plain
from interlock.store.ranking import moment
from interlock.store.records import (
    Batch,
    Change,
    Commit,
    Committed,
    Conflict,
    Illegal,
    JournalledRefusal,
    Key,
    Outcome,
    Pruned,
    Record,
    Recorded,
    Repeated,
    Request,
    RequestReused,
    TooLate,
    Work,
)
from interlock.store.sqlite.database import HeldClock, check_floor, connect
from interlock.store.sqlite.failures import store_error
from interlock.store.sqlite.queries import number_at
from interlock.store.sqlite.reads import (
    GIVEN_OF_STATE,
    NUMBERS,
    PLACE_BITS,
    REQUEST,
    STATE_OF_GIVEN,
    labels_of,
    list_text,
    members_of,
    recorded_of,
    row_of_recorded,
)
from interlock.store.sqlite.writes import Move, PendingWrites, Stand

# Entries added by a shell may be further than `progress`.
_PROGRESS = """
SELECT
  max(sequence, ifnull((SELECT max(sequence) FROM journal_rows), 0)),
  max(number, ifnull((SELECT max(number) FROM record_given), 0)),
  latest_us
FROM progress
"""
_MOVE_ON = "UPDATE progress SET sequence = ?, number = ?, latest_us = ?"
_REQUESTS = f"SELECT {REQUEST} FROM requests WHERE id IN (SELECT value FROM json_each(?))"
_STANDING = f"""
SELECT g.id, s.key, s.version, s.updated_us, p.name, g.queue, g.parent, g.labels, g.priority
FROM json_each(?) AS wanted CROSS JOIN record_given AS g ON g.kind = ? AND g.id = wanted.value
{STATE_OF_GIVEN}
"""

Moves: TypeAlias = Mapping[str, Mapping[tuple[str, str], Move]]
"""Legal steps by kind and pair of states; the first is empty for a creation."""

RowState: TypeAlias = tuple[int, Stand]
"""The key of a record, and its standing."""

Known: TypeAlias = dict[str, dict[str, RowState]]

ABSENT: RowState = (0, Stand(0, "", (None, None, (), 0), None))


class RowCache:
    """Records that a writer knows from one transaction to the next.

    SQLite tells a connection whether another one has committed since; if not, records that this one read or
    wrote are still current. It saves reading a record that was just claimed.
    """

    def __init__(self, kinds: Iterable[str], most: int = 20_000) -> None:
        self._progress: tuple[int, int, int] | None = None
        self._most = most
        self._seen = -1
        self._known: Known = {kind: {} for kind in kinds}

    def learn(self, kinds: Iterable[str]) -> None:
        """Add kinds."""
        self._known = {**{kind: {} for kind in kinds}, **self._known}

    def recall(self, connection: sqlite3.Connection) -> Known:
        """Return the current records; called in a transaction.

        They stay current to its end.

        Raise if a newer program has migrated the database, in this transaction and in each one after it.
        """
        (seen,) = connection.execute("PRAGMA data_version").fetchone()
        if seen != self._seen:
            check_floor(connection)  # nothing but a commit of another connection can have raised it
        if seen != self._seen or sum(map(len, self._known.values())) > self._most:
            self.forget()
            self._seen = seen
        return self._known

    def progress_in(self, connection: sqlite3.Connection) -> tuple[int, int, int]:
        """Return the last entry, the highest number and the latest time."""
        if self._progress is None:
            self._progress = connection.execute(_PROGRESS).fetchone()
        return self._progress

    def move_on(self, sequence: int, number: int, latest_us: int) -> None:
        """Remember the progress that was written."""
        self._progress = sequence, number, latest_us

    def forget(self) -> None:
        """Clear the cache, after a rollback or a commit of another connection."""
        self._progress = None
        for standings in self._known.values():
            standings.clear()


class Transaction:
    """The work between BEGIN and COMMIT."""

    def __init__(
        self, connection: sqlite3.Connection, moves: Moves, clock: HeldClock, memory: RowCache
    ) -> None:
        self.connection = connection
        self.wrote: bool = False
        self.broken: bool = False
        """Whether invalid data ended a judgement halfway: the transaction has to be rolled back."""
        self.flushed_us: int = 0
        """The time with which the last changes were written."""
        self._moves = moves
        self._memory = memory
        self._known = memory.recall(connection)
        self._requests: dict[str, Recorded | None] = {}
        self._work: Sequence[Work] = ()
        sequence, number, latest_us = memory.progress_in(connection)
        # Later than all before: records are listed by their numbers, and so by the time of their creation.
        self._begin(clock.read(latest_us + 1), number, sequence)

    def judge(self, work: Sequence[Work]) -> list[Outcome]:
        """Judge each commit, and keep the successful ones for `flush`."""
        self.broken = True
        self._work = work
        outcomes: list[Outcome] = []
        for item in work:
            if isinstance(item, Batch):
                outcomes += self._judge_batch(item)
            else:
                outcomes.append(self._judge_one(item))
        self.broken = False
        return outcomes

    def take(self, keyed: Iterable[tuple[int, Record]]) -> None:
        """Add records that were read in this transaction to the cache."""
        stand = ABSENT[1]
        for key, record in keyed:
            placing = (record.queue, record.parent, record.labels, record.priority)
            found = Stand(record.version, record.state, placing, record.updated_at)
            if found != stand:
                stand = found
            self._known[record.kind][record.id] = (key, stand)

    def state_of(self, key: Key) -> str:
        """Return the state of a record; empty if there is none."""
        known = self._known[key.kind]
        if key.id not in known:
            self._read_standings(key.kind, [key.id])
        return known[key.id][1].state

    def flush(self, *, goes_on: bool = True) -> None:
        """Write the judged changes.

        Nothing is judged any more unless the transaction continues.
        """
        pending = self._pending
        if pending.is_empty:
            return
        self.wrote, has_created = True, bool(pending.created)
        for kind, name, number in pending.write():  # created records that got other numbers
            key, stand = self._known[kind][name]
            self._known[kind][name] = ((key & ~NUMBERS) + number, stand)
        self.connection.execute(_MOVE_ON, (pending.sequence, pending.number, self.now_us))
        self._memory.move_on(pending.sequence, pending.number, self.now_us)
        self.flushed_us = self.now_us
        if goes_on and has_created:  # records are listed by the time of their creation
            self._begin(self.now_us + 1, pending.number, pending.sequence)

    def forget(self) -> None:
        """Clear the caches, because the database was changed directly."""
        self.wrote = True
        self._memory.forget()
        self._requests.clear()

    def _begin(self, now_us: int, number: int, sequence: int) -> None:
        self.now_us = now_us
        self.now: datetime = moment(now_us)
        self._committed = Committed(self.now)
        self._pending = PendingWrites(self.connection, self.now, now_us, number, sequence)

    def _judge_batch(self, batch: Batch) -> list[Outcome]:
        """Judge a batch.

        All records are judged at once if they are equal and there is no obstacle; otherwise one by one.
        """
        change, names, not_after = batch.change, batch.ids, batch.not_after
        if not_after is not None and self.now > not_after:
            return [TooLate(not_after, self.now)] * len(names)
        standings = self._standings(change.kind, names)
        stand = standings[0][1]
        move = self._moves[change.kind].get((stand.state, change.state))
        if move is None or stand.version != change.expected or not _are_alike(standings, batch.expected_at):
            return [self._judge_one(commit) for commit in batch.commits()]
        if change.expected:
            keys = [key for key, _ in standings]
            after = self._pending.change(change, move, stand, keys, batch.result)
        else:
            after = self._pending.create(change, move, names, batch.given, batch.result)
        keys, stand = after
        self._known[change.kind].update(zip(names, [(key, stand) for key in keys], strict=True))
        return [self._committed] * len(names)

    def _judge_one(self, commit: Commit) -> Outcome:
        request, not_after = commit.request, commit.not_after
        if request is not None and (repeat := self._repeat(request)) is not None:
            return repeat
        if not_after is not None and self.now > not_after:
            return TooLate(not_after, self.now)
        changes, plain = split_plain(commit.changes) if len(commit.changes) > 1 else (commit.changes, ())
        if (refusal := self._why_not(changes, plain)) is not None:
            return refusal
        for change in changes:
            self._write(change)
        if plain:
            self._write_plain(plain)
        for refused in commit.refusals:
            [(key, stand)] = self._standings(refused.kind, (refused.id,))
            self._pending.refuse(key & NUMBERS, refused.kind, refused.id, stand.version, refused.note)
        if request is not None:
            recorded = self._requests[request.id] = self._record(request)
            self._pending.record(row_of_recorded(recorded))
        return self._committed

    def _repeat(self, request: Request) -> Outcome | None:
        if request.id not in self._requests:
            self._learn_requests()
        found = self._requests[request.id]
        if found is None or found.expires_at <= self.now:
            return None
        same = found.fingerprint == request.fingerprint
        return Repeated(found) if same else RequestReused(found, request.fingerprint)

    def _why_not(self, changes: Sequence[Change], plain: Sequence[Change]) -> Conflict | Illegal | None:
        """Return the obstacle; a conflict precedes an illegal transition.

        After a conflict, the transition was decided on outdated data.
        """
        illegal: Illegal | None = None
        for change in changes:
            kind = change.kind
            [(_, stand)] = self._standings(kind, (change.id,))
            at = change.expected_at  # a missing record was never written
            if stand.version != change.expected or (at is not None and at != stand.since and stand.version):
                return Conflict(change.key, change.expected, stand.version)
            if illegal is None and (stand.state, change.state) not in self._moves[kind]:
                illegal = Illegal(change.key, stand.state, change.state)
        if plain:
            kind, state = plain[0].kind, plain[0].state
            standings = self._standings(kind, [change.id for change in plain])
            for change, (_, stand) in zip(plain, standings, strict=True):
                if stand.version:
                    return Conflict(change.key, 0, stand.version)
            if illegal is None and ("", state) not in self._moves[kind]:
                illegal = Illegal(plain[0].key, "", state)
        return illegal

    def _write(self, change: Change) -> None:
        kind, name = change.kind, change.id
        key, stand = self._known[kind][name]
        move = self._moves[kind][stand.state, change.state]
        results = () if change.result is None else (change.result,)
        if change.expected:
            after = self._pending.change(change, move, stand, (key,), results)
        else:
            after = self._pending.create(change, move, (name,), (change.given or b"",), results)
        (key,), stand = after
        self._known[kind][name] = (key, stand)

    def _write_plain(self, plain: Sequence[Change]) -> None:
        """Write plain creations, which differ in ids and bodies."""
        change = plain[0]
        kind, names = change.kind, [each.id for each in plain]
        move, bodies = self._moves[kind]["", change.state], [each.body for each in plain]
        keys, stand = self._pending.create(change, move, names, (), (), bodies)
        self._known[kind].update(zip(names, [(key, stand) for key in keys], strict=True))

    def _standings(self, kind: str, names: Sequence[str]) -> list[RowState]:
        """Return the standings of these records.

        The first unknown one makes all of this call be read.
        """
        known = self._known[kind]
        if any(name not in known for name in names):
            self._learn_records()
        return [known[name] for name in names]

    def _learn_records(self) -> None:
        wanted: dict[str, dict[str, None]] = {}
        for item in self._work:
            for kind, name in _touched(item):
                if name not in self._known[kind]:
                    wanted.setdefault(kind, {})[name] = None
        for kind, names in wanted.items():
            self._read_standings(kind, list(names))

    def _read_standings(self, kind: str, names: list[str]) -> None:
        known = self._known[kind]
        known.update(dict.fromkeys(names, ABSENT))
        stand = ABSENT[1]
        for row in self.connection.execute(_STANDING, (list_text(names), kind)):
            name, key, version, since_us, state, queue, parent, labels, priority = row
            placing = (queue, parent, labels_of(labels) if labels else (), priority)
            found = Stand(version, state, placing, moment(since_us))
            if found != stand:
                stand = found
            known[name] = (key, stand)

    def _learn_requests(self) -> None:
        request_ids = [item.request.id for item in self._work if isinstance(item, Commit) and item.request]
        unknown = [name for name in request_ids if name not in self._requests]
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


def _are_alike(standings: Sequence[RowState], expected_at: Sequence[datetime | None]) -> bool:
    """Return whether records are alike in everything that a change needs.

    They have the same version, state and place, and were written at the expected time.
    """
    first = standings[0][1]
    if len({id(stand) for _, stand in standings}) == 1:
        return not first.version or {None, first.since}.issuperset(expected_at)
    if any(stand[:3] != first[:3] for _, stand in standings):
        return False
    return not first.version or all(
        at is None or at == stand.since for at, (_, stand) in zip(expected_at, standings, strict=False)
    )


def _touched(item: Work) -> Iterable[tuple[str, str]]:
    """Return kind and id of each record of the work."""
    if isinstance(item, Batch):
        return [(item.change.kind, name) for name in item.ids]
    touched: tuple[Change | JournalledRefusal, ...] = (*item.changes, *item.refusals)
    return [(each.kind, each.id) for each in touched]


# A record is created before it is changed, so numbers, which are in the order of creation, narrow the search.
_OLD = f"""
WITH ended AS (SELECT place << {PLACE_BITS} AS first FROM states WHERE kind = ? AND name = ?)
SELECT s.key, g.id, s.trail FROM ended
CROSS JOIN record_state AS s ON s.key > first AND s.key < first + ? {GIVEN_OF_STATE}
WHERE s.updated_us <= ? LIMIT ?
"""
_IN_ORDER = f"""
WITH ended AS (SELECT place << {PLACE_BITS} AS first FROM states WHERE kind = ? AND name = ?)
SELECT s.key, g.id, s.trail, g.queue, s.updated_us FROM ended
CROSS JOIN record_state AS s ON s.key > first + ? AND s.key < first + ? {GIVEN_OF_STATE}
ORDER BY s.key LIMIT ?
"""
_REMOVE = "DELETE FROM record_state WHERE key IN (SELECT value FROM json_each(?))"
_REMOVE_REQUESTS = """
DELETE FROM requests
WHERE id IN (SELECT id FROM requests WHERE expires_us <= ? ORDER BY expires_us LIMIT ?)
"""
_MORE_REQUESTS = "SELECT EXISTS (SELECT 1 FROM requests WHERE expires_us <= ?)"
_PRUNED_UP_TO = "UPDATE progress SET pruned_up_to = max(pruned_up_to, ?), latest_us = max(latest_us, ?)"

_MEMBERS = """
SELECT sequence, size, record, members FROM json_each(?) AS wanted
CROSS JOIN journal_rows ON sequence = wanted.value
"""
_COUNT_DOWN = "UPDATE journal_rows SET remaining = remaining - ? WHERE sequence = ?"
_REMOVE_EMPTY = """
DELETE FROM journal_rows WHERE sequence IN (SELECT value FROM json_each(?)) AND remaining <= 0
"""
_OF_RECORDS = "size = 1 AND record > 0 AND record IN (SELECT value FROM json_each(?))"
_OF_NAMES = "record = 0 AND kind = ? AND id IN (SELECT value FROM json_each(?))"

_LEAST_REQUESTS = 1_000
_INCREMENTAL = 2
_PAGES = 1_000
_PATIENCE_MS = 60_000
_OLDEST_US = -(2**62)
_MICROSECOND = timedelta(microseconds=1)


def prune(ledger: Transaction, kind: str, states: Sequence[str], older_than: timedelta, limit: int) -> Pruned:
    """Prune one batch.

    The caller has checked that the states are final; the database does so again.
    """
    before_us = max(ledger.now_us - older_than // _MICROSECOND, _OLDEST_US)
    old = _old(ledger, kind, states, before_us, limit + 1)
    gone = old[:limit]
    entries = _remove(ledger, kind, gone) if gone else 0
    removed = ledger.connection.execute(_REMOVE_REQUESTS, (ledger.now_us, max(limit, _LEAST_REQUESTS)))
    (more_requests,) = ledger.connection.execute(_MORE_REQUESTS, (ledger.now_us,)).fetchone()
    ledger.forget()
    return Pruned(len(gone), entries, removed.rowcount, more=len(old) > limit or bool(more_requests))


class QueueWalk(NamedTuple):
    """A batch of `Store.prune_by_queue`; `after` is the number of the last record that was looked at."""

    kind: str
    state: str
    older_than: timedelta | None
    queues: Mapping[str, timedelta]
    after: int
    limit: int
    within: int

    def horizons(self, now_us: int) -> tuple[dict[str | None, int], int]:
        """Return the latest end of records to remove: by queue, and of others."""
        by_queue: dict[str | None, int] = {
            name: max(now_us - age // _MICROSECOND, _OLDEST_US) for name, age in self.queues.items()
        }
        others = _OLDEST_US if self.older_than is None else now_us - self.older_than // _MICROSECOND
        return by_queue, max(others, _OLDEST_US)


def prune_by_queue(ledger: Transaction, walk: QueueWalk) -> Pruned:
    """Prune among the next records of a state.

    There is no index by queue, so each record is examined.
    """
    by_queue, others = walk.horizons(ledger.now_us)
    newer = number_at(ledger.connection, max((others, *by_queue.values())) + 1)
    gone: list[tuple[int, str, str]] = []
    last, more = walk.after, False
    rows = ledger.connection.execute(_IN_ORDER, (walk.kind, walk.state, walk.after, newer, walk.within + 1))
    for looked_at, (key, name, trail, queue, updated_us) in enumerate(rows):
        old = updated_us <= by_queue.get(queue, others)
        more = looked_at == walk.within or (old and len(gone) == walk.limit)
        if more:
            break
        if old:
            gone.append((key, name, trail))
        last = key & NUMBERS
    rows.close()
    entries = _remove(ledger, walk.kind, gone) if gone else 0
    ledger.forget()
    return Pruned(len(gone), entries, more=more, cursor=write_cursor(last, "") if more else "")


def compact(path: Path) -> int:
    """Give free pages back to the file system; return the bytes.

    The first time the file is rewritten as a whole, so that later it can be done in small steps, between
    which others can write.
    """
    before = path.stat().st_size
    try:
        with closing(connect(path)) as connection:
            connection.execute(f"PRAGMA busy_timeout = {_PATIENCE_MS}")
            if connection.execute("PRAGMA auto_vacuum").fetchone() != (_INCREMENTAL,):
                connection.execute(f"PRAGMA auto_vacuum = {_INCREMENTAL}")
                connection.execute("VACUUM")
            while connection.execute("PRAGMA freelist_count").fetchone() != (0,):
                connection.execute(f"PRAGMA incremental_vacuum({_PAGES})").fetchall()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.Error as error:
        raise store_error(error, path) from error
    return before - path.stat().st_size


def _old(
    ledger: Transaction, kind: str, states: Sequence[str], before_us: int, limit: int
) -> list[tuple[int, str, str]]:
    """Return keys, ids and trails."""
    old: list[tuple[int, str, str]] = []
    newer = number_at(ledger.connection, before_us + 1)
    for state in dict.fromkeys(states):
        left = limit - len(old)
        old += ledger.connection.execute(_OLD, (kind, state, newer, before_us, left)).fetchall()
    return old


def _remove(ledger: Transaction, kind: str, gone: list[tuple[int, str, str]]) -> int:
    connection = ledger.connection
    connection.execute(_REMOVE, (list_text([key for key, _, _ in gone]),))
    trails = {key & NUMBERS: trail for key, _, trail in gone}
    removed = _remove_entries(connection, kind, [name for _, name, _ in gone], trails)
    connection.execute(_PRUNED_UP_TO, (removed.last, ledger.now_us))
    return removed.number


class RemovedEntries(NamedTuple):
    """The number of removed entries, and the last of them."""

    number: int
    last: int


def _remove_entries(
    connection: sqlite3.Connection, kind: str, names: Sequence[str], trails: Mapping[int, str]
) -> RemovedEntries:
    """Remove the entries of removed records.

    They are found by name, and by number with their trails.
    """
    removed = last = 0
    numbers = list_text(list(trails))
    for condition, parameters in ((_OF_RECORDS, (numbers,)), (_OF_NAMES, (kind, list_text(names)))):
        (newest,) = connection.execute(
            f"SELECT ifnull(max(sequence), 0) FROM journal_rows WHERE {condition}", parameters
        ).fetchone()
        removed += connection.execute(f"DELETE FROM journal_rows WHERE {condition}", parameters).rowcount
        last = max(last, newest)
    gone: dict[int, set[int]] = {}
    for number, trail in trails.items():
        for sequence in trail.split():
            gone.setdefault(int(sequence), set()).add(number)
    rows = list_text(list(gone))
    for sequence, size, record, members in connection.execute(_MEMBERS, (rows,)):
        places = [place for place, n in enumerate(members_of(size, record, members)) if n in gone[sequence]]
        last = max(last, sequence - size + 1 + places[-1])
        removed += len(places)
    connection.executemany(_COUNT_DOWN, [(len(some), sequence) for sequence, some in gone.items()])
    connection.execute(_REMOVE_EMPTY, (rows,))
    return RemovedEntries(removed, last)
