"""The journal, read back after the end: grants and their outcomes."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from datetime import datetime

import msgspec

from interlock.engine.audit import Audit, audit
from interlock.engine.loader import every_record
from interlock.lifecycles import attempt, job
from interlock.lifecycles.attempt import ATTEMPT
from interlock.lifecycles.job import JOB, JobState
from interlock.store.contract import Store
from interlock.store.records import Entry, StepLine
from interlock.systems.catalogue import JOURNALLED
from interlock.systems.orchestrator.body import given_of
from interlock_verification.chaos.system.fleet import LOSSES
from interlock_verification.claims import DecodedJob, gives_back, look_at_record

PAGE = 1_000
FAR_OFF_S = 1_800
"""A clock that is off by this much was skewed on purpose."""


class Try(msgspec.Struct):
    """One attempt, from its grant to its end."""

    job_id: str
    name: str
    runner_id: str
    granted_at: datetime
    ended_at: datetime | None = None
    state: str = ""
    closed_by: str = ""
    """The runner whose report ended it, if there was one."""

    @property
    def shard(self) -> str:
        """The shard that it attempted."""
        return self.name.partition(".")[0]


class KeptJob(msgspec.Struct):
    """A job as its record keeps it."""

    id: str
    intent: str
    result: bytes
    look: DecodedJob

    @property
    def state(self) -> JobState:
        """The state of the job."""
        return self.look.state


class JobHistory(msgspec.Struct):
    """The contents of the journal and the records."""

    audit: Audit
    jobs: list[KeptJob] = []
    tries: dict[tuple[str, str], Try] = {}
    by_job: dict[str, list[Try]] = msgspec.field(default_factory=lambda: defaultdict(list))
    completed: Counter[str] = msgspec.field(default_factory=Counter)
    refusals: dict[tuple[str, str], list[str]] = msgspec.field(default_factory=lambda: defaultdict(list))
    """Refusals by job and runner."""
    moments: dict[str, list[datetime]] = msgspec.field(default_factory=lambda: defaultdict(list))
    """Times of commits caused by a worker or a submitter, by name."""
    queues: dict[str, str | None] = {}
    """The queue of each job."""
    releases: Counter[str] = msgspec.field(default_factory=Counter)
    """Number of releases of each job."""
    skewed: int = 0
    """Number of results from a host with a skewed clock."""

    def next_message(self, names: tuple[str, ...], after: datetime) -> datetime | None:
        """Return when one of these was first heard after a time."""
        found = []
        for name in names:
            moments = self.moments.get(name, [])
            place = bisect_left(moments, after)
            found += moments[place : place + 1]
        return min(found, default=None)


async def read_history(store: Store) -> JobHistory:
    """Replay the journal, and index it."""
    history = JobHistory(audit=await audit(store, JOURNALLED, [JOB.name]))
    cursor = ""
    while True:
        feed = await store.feed(cursor, limit=PAGE)
        for entry in feed.entries:
            if entry.kind == JOB.name:
                _note(history, entry)
        if len(feed.entries) < PAGE:
            break
        cursor = feed.cursor
    for moments in history.moments.values():
        moments.sort()
    await _keep(history, store)
    return history


def _note(history: JobHistory, entry: Entry) -> None:
    note = entry.note
    for name in (note.actor.partition("#")[0], note.request_id.partition("-")[0]):
        history.moments[name].append(entry.at)
    if note.refusal:
        history.refusals[entry.id, note.actor].append(note.refusal)
    if gives_back(note.steps):
        history.releases[entry.id] += 1
    for step in note.steps:
        if step.machine == ATTEMPT.name:
            _note_attempt(history, entry, step)
        elif step.machine == JOB.name and step.target == job.COMPLETED:
            history.completed[entry.id] += 1


def _note_attempt(history: JobHistory, entry: Entry, step: StepLine) -> None:
    key = (entry.id, step.entity)
    if step.target == attempt.LEASED:
        one = Try(entry.id, step.entity, entry.note.actor, entry.at)
        history.tries[key] = one
        history.by_job[entry.id].append(one)
    elif step.target in attempt.ENDED and key in history.tries:
        ended = history.tries[key]
        ended.ended_at, ended.state, ended.closed_by = entry.at, step.target, entry.note.actor


async def _keep(history: JobHistory, store: Store) -> None:
    async for record in every_record(store, JOB.name):
        look = look_at_record(record, history.releases[record.id], default_losses=LOSSES)
        history.queues[record.id] = record.queue
        intent: str = msgspec.json.decode(given_of(record).input)["intent"]
        done = [one for one in look.body.attempts if one.state is attempt.SUCCEEDED]
        result = record.result or b"null"
        history.jobs.append(KeptJob(record.id, intent, result, look))
        for one in done:
            clock = _clock_in(result)
            if clock is not None and one.ended_at and abs(clock - one.ended_at.timestamp()) > FAR_OFF_S:
                history.skewed += 1


def _clock_in(result: bytes) -> float | None:
    """Return the clock of the host in a result, or None of another handler."""
    reading = msgspec.json.decode(result)
    clock = reading.get("clock") if isinstance(reading, dict) else None
    return clock if isinstance(clock, float) else None
