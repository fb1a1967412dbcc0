"""The contract once more, as naively as it can be said: a list of records and a list of entries.

It shares no code with any store, and is told the time by the store that it is compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from interlock.store.records import (
    Change,
    Claim,
    Commit,
    Committed,
    Conflict,
    Illegal,
    Key,
    Note,
    Outcome,
    Query,
    Record,
    Repeated,
    RequestReused,
    TooLate,
    Work,
)

LEGAL = {
    "": {"packed", "sent", "delivered", "lost", "returned"},
    "packed": {"packed", "sent", "delivered", "lost", "returned"},
    "sent": {"sent", "delivered", "lost", "returned"},
    "delivered": {"delivered"},
    "lost": {"lost", "returned"},
    "returned": {"returned"},
}
"""What may become of a parcel, written down by hand."""


class Reference:
    """What a store should contain by now."""

    def __init__(self) -> None:
        self.records: dict[Key, Record] = {}
        self.handlers: dict[Key, str] = {}
        self.entries: list[tuple[Key, int, Note]] = []
        self.requests: dict[str, tuple[str, bytes]] = {}

    def check(self, work: Sequence[Work], outcomes: Sequence[Outcome]) -> None:
        """Hold the outcomes against what should have come out, and take over what has become true."""
        commits = [commit for item in work for commit in _commits_of(item)]
        assert len(outcomes) == len(commits)
        for commit, outcome in zip(commits, outcomes, strict=True):
            self._check_one(commit, outcome)

    def ready(self, claim: Claim, now: datetime) -> list[Record]:
        """What a claim should be given, in order."""
        found = [
            record
            for record in self.records.values()
            if record.kind == claim.kind
            and record.queue in claim.queues
            and all(label in claim.labels for label in record.labels)
            and (claim.handlers is None or self.handlers[record.key] in ("", *claim.handlers))
            and record.ready_at is not None
            and record.ready_at <= now
        ]
        return sorted(found, key=_claim_order)[: claim.limit]

    def due(self, limit: int, now: datetime) -> list[Record]:
        """What a sweep should be given, in order."""
        late = [
            record for record in self.records.values() if record.deadline_at and record.deadline_at <= now
        ]
        return sorted(late, key=lambda record: (record.deadline_at, record.id))[:limit]

    def matching(self, query: Query) -> list[Record]:
        """What should be found, in order."""
        found = [
            record
            for record in self.records.values()
            if (not query.states or record.state in query.states)
            and (query.parent is None or record.parent == query.parent)
            and (query.queue is None or record.queue == query.queue)
            and all(label in record.labels for label in query.labels)
        ]
        return sorted(found, key=lambda record: (record.created_at, record.id), reverse=query.newest_first)

    def forget(self, states: Sequence[str]) -> tuple[int, int]:
        """Remove what has ended; how many records and entries that are."""
        gone = {key for key, record in self.records.items() if record.state in states}
        kept = [entry for entry in self.entries if entry[0] not in gone]
        removed = len(self.entries) - len(kept)
        self.entries = kept
        self.records = {key: record for key, record in self.records.items() if key not in gone}
        return len(gone), removed

    def _check_one(self, commit: Commit, outcome: Outcome) -> None:
        asked, known = commit.request, self.requests.get(commit.request.id if commit.request else "")
        match outcome:
            case Repeated(recorded):
                assert asked is not None
                assert known == (asked.fingerprint, recorded.answer.body)
            case RequestReused(recorded, fingerprint):
                assert asked is not None
                assert known == (recorded.fingerprint, recorded.answer.body)
                assert recorded.fingerprint != fingerprint == asked.fingerprint
            case _:
                assert known is None, "This request was known."
                self._check_effect(commit, outcome)

    def _check_effect(self, commit: Commit, outcome: Outcome) -> None:
        if isinstance(outcome, TooLate):
            assert commit.not_after is not None
            assert commit.not_after < outcome.now
            return
        expected = self._conflict(commit) or self._illegal(commit)
        if expected is not None:
            assert outcome == expected
            return
        assert isinstance(outcome, Committed), outcome
        assert commit.not_after is None or commit.not_after >= outcome.at
        self._write(commit, outcome.at)

    def _conflict(self, commit: Commit) -> Conflict | None:
        for change in commit.changes:
            record = self.records.get(change.key)
            found = record.version if record else 0
            if found != change.expected or (record and change.expected_at not in (None, record.updated_at)):
                return Conflict(change.key, change.expected, found)
        return None

    def _illegal(self, commit: Commit) -> Illegal | None:
        for change in commit.changes:
            source = self.records[change.key].state if change.key in self.records else ""
            if change.state not in LEGAL[source]:
                return Illegal(change.key, source, change.state)
        return None

    def _write(self, commit: Commit, at: datetime) -> None:
        for change in commit.changes:
            before = self.records.get(change.key)
            self.records[change.key] = _after(change, before, at)
            self.handlers[change.key] = change.handler
            if change.note is not None:
                self.entries.append((change.key, change.expected + 1, change.note))
        if commit.request is not None:
            self.requests[commit.request.id] = (commit.request.fingerprint, commit.request.answer.body)


def _commits_of(item: Work) -> list[Commit]:
    """A batch means a commit for each of its records."""
    if isinstance(item, Commit):
        return [item]
    found: list[Commit] = []
    for place, name in enumerate(item.ids):
        change = Change(
            kind=item.change.kind,
            id=name,
            expected=item.change.expected,
            expected_at=item.expected_at[place] if item.expected_at else None,
            state=item.change.state,
            body=item.change.body,
            given=item.given[place] if item.given else None,
            result=item.result[place] if item.result else None,
            parent=item.change.parent,
            queue=item.change.queue,
            labels=item.change.labels,
            priority=item.change.priority,
            ready_at=item.change.ready_at,
            handler=item.change.handler,
            deadline_at=item.change.deadline_at,
            note=item.change.note,
        )
        found.append(Commit(changes=(change,), not_after=item.not_after))
    return found


def _after(change: Change, before: Record | None, at: datetime) -> Record:
    result = before.result if before else b""
    return Record(
        kind=change.kind,
        id=change.id,
        state=change.state,
        version=change.expected + 1,
        body=change.body,
        given=before.given if before else change.given or b"",
        result=result if change.result is None else change.result,
        parent=change.parent,
        queue=change.queue,
        labels=change.labels,
        priority=change.priority,
        ready_at=change.ready_at,
        deadline_at=change.deadline_at,
        created_at=before.created_at if before else at,
        updated_at=at,
    )


def _claim_order(record: Record) -> tuple[float, str]:
    assert record.ready_at is not None
    return record.ready_at.timestamp() - 60 * record.priority, record.id
