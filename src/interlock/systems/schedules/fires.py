"""The record of a schedule, and the decision when it is due. Pure.

One commit moves the schedule to its next fire and creates the jobs of past fires. The version of the schedule
ensures that this happens once, and the id of each job is derived from the schedule and the fire time.

The decision depends on other jobs of the schedule. A decider gets the known ones (`KnownJobs`), and names the
missing ones; then they are loaded and it is called again.

Why: decision 0391.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

import msgspec

from interlock.engine.aggregate import Columns, Entity, RecordKind, postponed
from interlock.errors import InvalidSchedule, TransitionRefused
from interlock.lifecycles import job, schedule
from interlock.lifecycles.job import JOB
from interlock.lifecycles.schedule import ACTIVE, SCHEDULE, Schedule
from interlock.machine.cascade import EventRules
from interlock.store.records import Change, Commit, Key, Note, Record
from interlock.systems.orchestrator.body import given_of
from interlock.systems.orchestrator.cancellation import cancelled, commit_of
from interlock.systems.orchestrator.gates import limit_messages_of
from interlock.systems.orchestrator.ids import ticks_of
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.submission import check_spec, new_job
from interlock.systems.schedules.settings import ScheduleSettings
from interlock.text import counted
from interlock.wire.calendar import Calendar
from interlock.wire.jobs import JobSpec
from interlock.wire.schedules import (
    MAX_CATCH_UP,
    TRACE_SCHEDULE,
    TRACE_SCHEDULED_FOR,
    Fire,
    Overlap,
    ScheduleSpec,
    schedule_in,
    scheduled_for_in,
)

GRACE = timedelta(seconds=60)
"""A fire that is later than this was missed, and the catch-up policy decides about it."""

TRY_AGAIN = timedelta(minutes=10)
"""Delay after a schedule could not be decided."""
MAX_WAITING = 1_000
MAX_LIVE = 20
MAX_RECENT = 20
MAX_SPEC_BYTES = 65_536
_NOT_IN_A_SCHEDULE = {
    "unique": "the overlap policy applies while a job of the schedule has not ended. For a task "
    "that is unique, use task.options(unique=None).",
    "after": "the schedule says when its jobs begin.",
    "at": "the schedule says when its jobs begin.",
    "not_after": "start_within_s counts from each fire.",
}
_WHY = 500
_SALTS = 8
_HASHED_BITS = 26
"""Hashed bits of a job's id: the rest is its fire time, so that ids sort by time (about 9 minutes)."""


class ScheduleBody(Schedule, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a schedule's record."""

    spec: ScheduleSpec
    recent: tuple[Fire, ...] = ()
    """The last jobs, newest first."""
    source: str = ""
    reason: str = ""
    by: str = ""


SCHEDULES = RecordKind(
    SCHEDULE,
    ScheduleBody,
    columns=lambda body: Columns(queue=body.spec.job.queue),
    due={schedule.Due: lambda entity: entity.body.due_at},
    # The jobs of a fire are journalled; polling for one that waits is not.
    events=EventRules(
        made={schedule.Due: lambda entity, _: schedule.Due(at=entity.now)}, quiet=(schedule.Due,)
    ),
)


class KnownJobs:
    """Loaded jobs by id; `missing` are others that a decision needs."""

    def __init__(self, records: Mapping[str, Record | None]) -> None:
        self._records = records
        self.missing: set[str] = set()

    def get(self, job_id: str) -> Record | None:
        """Return a job; None if there is none, or it is not loaded."""
        if job_id not in self._records:
            self.missing.add(job_id)
        return self._records.get(job_id)

    def is_live(self, job_id: str) -> bool:
        """Return whether a job has not ended."""
        record = self.get(job_id)
        return record is not None and record.state not in job.ENDED


class PassedFires(NamedTuple):
    """Fire times that have come."""

    fires: tuple[datetime, ...]
    """Fires that get a job."""
    missed: int
    last_at: datetime
    next_at: datetime | None


class Chosen(NamedTuple):
    """The result of the overlap policy."""

    begin: tuple[datetime, ...] = ()
    """Waiting fires that get a job now."""
    submit: tuple[datetime, ...] = ()
    """New fires that get a job now."""
    waiting: tuple[datetime, ...] = ()
    cancel: tuple[str, ...] = ()
    skipped: int = 0


def calendar_of(name: str, spec: ScheduleSpec) -> Calendar:
    """Return the calendar of a schedule."""
    return Calendar(spec, name)


def check_schedule(name: str, spec: ScheduleSpec, settings: ScheduleSettings) -> Calendar:
    """Validate a schedule; return its calendar."""
    check_spec(spec.job, settings.jobs)
    if spec.job.parent_job_id is not None:
        raise InvalidSchedule(
            "A job that a schedule submits has no parent.",
            todo="Leave parent_job_id out.",
            facts={"schedule": name},
        )
    for field, instead in _NOT_IN_A_SCHEDULE.items():
        if getattr(spec.job, field) is not None:
            raise InvalidSchedule(
                f"A job that a schedule submits has no {field}.",
                todo=f"Leave {field} out: {instead}",
                facts={"schedule": name, "task": spec.job.task},
            )
    size = len(msgspec.json.encode(spec))
    if size > MAX_SPEC_BYTES:
        raise InvalidSchedule(
            f"A schedule has at most {MAX_SPEC_BYTES} bytes, not {size}.",
            todo="Keep large data elsewhere, and pass a reference to it.",
            facts={"schedule": name, "bytes": size, "limit": MAX_SPEC_BYTES},
        )
    return calendar_of(name, spec)


def new_schedule(
    name: str, spec: ScheduleSpec, now: datetime, *, source: str, actor: str, calendar: Calendar
) -> Entity[ScheduleBody]:
    """Return a new schedule."""
    next_at, due_at = next_fire(calendar, now)
    if due_at is None:
        raise never_fires(name, spec)
    body = ScheduleBody(spec=spec, source=source, by=actor, next_at=next_at, due_at=due_at)
    return SCHEDULES.new(name, body, now)


def never_fires(name: str, spec: ScheduleSpec) -> InvalidSchedule:
    """Return the error for a schedule without a fire in the future."""
    return InvalidSchedule(
        f"The schedule {name} would never fire: all its fire times have passed, or are excluded.",
        todo="Change when it fires, or its start, end and exclusions.",
        facts={"schedule": name, "cron": spec.cron, "every": spec.every, "at": list(spec.at)},
    )


def next_fire(calendar: Calendar, after: datetime) -> tuple[datetime | None, datetime | None]:
    """Return the next fire time, and when to submit its job."""
    next_at = calendar.after(after)
    return next_at, None if next_at is None else calendar.due_at(next_at)


# Due schedules


def decide_due(record: Record, jobs: KnownJobs, now: datetime, settings: ScheduleSettings) -> Commit | None:
    """Return the commit of a due schedule.

    Return None if it is not due, or jobs are missing.
    """
    body = SCHEDULES.body_of(record)
    if record.state != ACTIVE or body.due_at is None or now < body.due_at:
        return None
    calendar = calendar_of(record.id, body.spec)
    passed = passed_fires(calendar, body, now)
    live = tuple(job_id for job_id in body.live if jobs.is_live(job_id))
    chosen = choose(body.spec.overlap, body.waiting, passed.fires if passed else (), live)
    fires = (*chosen.begin, *chosen.submit)
    made, new = submitted(record.id, body.spec.job, fires, "due", jobs, now, settings.jobs)
    stopped = _cancelled(record.id, chosen.cancel, jobs, now, settings.jobs)
    if jobs.missing:
        return None
    next_at = passed.next_at if passed else body.next_at
    skipped = chosen.skipped + (passed.missed if passed else 0)
    entity = SCHEDULES.of(record, now)
    entity.must(
        schedule.Due(
            at=now,
            next_at=next_at,
            due_at=_due_at(calendar, next_at, chosen.waiting, look_at(now, settings)),
            last_at=passed.last_at if passed else None,
            submitted=jobs_in(new),
            skipped=skipped,
            waiting=chosen.waiting,
            live=_live(body, live, chosen, made),
        )
    )
    entity.body = msgspec.structs.replace(entity.body, recent=_recent(body, made))
    reason = _summary(made, skipped, chosen.waiting)
    change = entity.change(actor="clock", reason=reason, note=bool(passed or made))
    return Commit(changes=(change, *new, *stopped))


def passed_fires(calendar: Calendar, body: ScheduleBody, now: datetime) -> PassedFires | None:
    """Return the fires since the last ones, according to the catch-up policy."""
    if body.next_at is None:
        return None
    come = calendar.between(body.next_at - timedelta(seconds=1), now, MAX_CATCH_UP + 1)
    due = [fire for fire in come if calendar.due_at(fire) <= now]
    if not due:
        return None
    on_time = [fire for fire in due if now - calendar.due_at(fire) <= GRACE]
    wanted = {"none": on_time, "latest": on_time or due[-1:], "all": due}[body.spec.catch_up]
    most = max(body.spec.catch_up_limit, len(on_time))
    wanted = wanted[-min(most, MAX_CATCH_UP) :]
    return PassedFires(tuple(wanted), len(due) - len(wanted), due[-1], calendar.after(due[-1]))


def choose(
    overlap: Overlap, waiting: Sequence[datetime], fires: Sequence[datetime], live: Sequence[str]
) -> Chosen:
    """Return which fires get a job now, which wait, and which are skipped.

    Fires wait under the policy `queue`, and after a queued backfill; one begins when no job is live.
    """
    fires, skipped = tuple(fires), 0
    if overlap == "queue":
        come = (*waiting, *fires)
        waiting, fires = come[:MAX_WAITING], ()
        skipped = len(come) - len(waiting)
    if overlap == "cancel" and fires:
        return Chosen((), fires[-1:], tuple(waiting), tuple(live), len(fires) - 1)
    begin = () if live else tuple(waiting[:1])
    rest = tuple(waiting[len(begin) :])
    if overlap == "allow" or not fires:
        return Chosen(begin, fires, rest, (), skipped)
    submit = () if live or begin else fires[-1:]
    return Chosen(begin, submit, rest, (), skipped + len(fires) - len(submit))


def look_at(now: datetime, settings: ScheduleSettings) -> datetime:
    """Return when a schedule with a waiting fire is checked again.

    Its previous job may have ended by then.
    """
    return now + timedelta(seconds=settings.schedule_look_s)


def _due_at(
    calendar: Calendar, next_at: datetime | None, waiting: Sequence[datetime], look: datetime
) -> datetime | None:
    due = [] if next_at is None else [calendar.due_at(next_at)]
    return min([*due, look] if waiting else due, default=None)


def _live(body: ScheduleBody, live: Sequence[str], chosen: Chosen, made: Sequence[Fire]) -> tuple[str, ...]:
    """Return the jobs that later fires depend on."""
    if body.spec.overlap == "allow":  # only waiting fires depend on jobs, and only on those before them
        made = made[: len(chosen.begin)]
    kept = [job_id for job_id in live if job_id not in chosen.cancel]
    return tuple(dict.fromkeys((*kept, *(fire.job_id for fire in made))))[-MAX_LIVE:]


def _recent(body: ScheduleBody, made: Sequence[Fire]) -> tuple[Fire, ...]:
    return (*reversed(made), *body.recent)[:MAX_RECENT]


def _summary(made: Sequence[Fire], skipped: int, waiting: Sequence[datetime]) -> str:
    parts = [f"{iso(fire.scheduled_for)} as {fire.job_id}" for fire in made[:5]]
    if len(made) > 5:
        parts.append(f"{len(made) - 5} more")
    if skipped:
        parts.append(f"{counted(skipped, 'fire')} skipped")
    if waiting:
        parts.append(f"{counted(len(waiting), 'fire')} waiting")
    return "; ".join(parts)


def iso(at: datetime) -> str:
    """Return a time in the format of traces and of the journal."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


# Jobs


def submitted(
    name: str,
    spec: JobSpec,
    fires: Sequence[datetime],
    how: Literal["due", "backfill"],
    jobs: KnownJobs,
    now: datetime,
    settings: OrchestratorSettings,
) -> tuple[list[Fire], list[Change]]:
    """Return the jobs of some fires, and the changes that create missing ones."""
    made: list[Fire] = []
    new: list[Change] = []
    for at in fires:
        job_id, is_there = _place(name, at, jobs)
        made.append(Fire(scheduled_for=at, job_id=job_id, how=how))
        if not is_there:
            new += new_scheduled_job(name, spec, at, job_id, now, settings)
    return made, new


def jobs_in(changes: Iterable[Change]) -> int:
    """Return how many jobs are among these changes.

    A job under a limit comes with its ticket.
    """
    return sum(change.kind == JOB.name for change in changes)


def new_scheduled_job(
    name: str, spec: JobSpec, at: datetime, job_id: str, now: datetime, settings: OrchestratorSettings
) -> tuple[Change, ...]:
    """Return the changes that create the job of a fire."""
    trace = {**spec.trace, TRACE_SCHEDULE: name, TRACE_SCHEDULED_FOR: iso(at)}
    draft = new_job(msgspec.structs.replace(spec, trace=trace), job_id, now, settings)
    change = draft.change(actor=f"schedule {name}", reason=f"scheduled for {iso(at)}")
    return (change, *limit_messages_of(draft))


def job_id_of(name: str, at: datetime, salt: int = 0) -> str:
    """Return the id of the job of a fire: the same in every process."""
    digest = hashlib.sha256(f"{name} {iso(at)} {salt}".encode()).digest()
    hashed = int.from_bytes(digest[:8], "big") % 2**_HASHED_BITS
    return f"j_{(ticks_of(at) >> _HASHED_BITS << _HASHED_BITS) + hashed:012x}"


def is_job_of(record: Record, name: str, at: datetime) -> bool:
    """Return whether a job belongs to this fire.

    Another fire may have the same id.
    """
    trace = given_of(record).trace
    return schedule_in(trace) == name and scheduled_for_in(trace) == at


def _place(name: str, at: datetime, jobs: KnownJobs) -> tuple[str, bool]:
    """Return the id of the job of a fire, and whether it exists."""
    for salt in range(_SALTS):
        job_id = job_id_of(name, at, salt)
        record = jobs.get(job_id)
        if record is None:
            return job_id, False
        if is_job_of(record, name, at):
            return job_id, True
    raise InvalidSchedule(  # eight ids of 67 million are taken: practically impossible
        f"No id is free for the job of {name} at {iso(at)}.", todo="Try again.", facts={"schedule": name}
    )


def _cancelled(
    name: str, job_ids: Sequence[str], jobs: KnownJobs, now: datetime, settings: OrchestratorSettings
) -> list[Change]:
    changes: list[Change] = []
    words = f"the next job of the schedule {name} is due"
    for job_id in job_ids:
        record = jobs.get(job_id)
        with suppress(TransitionRefused):  # it is already being stopped
            if record is not None:
                draft = cancelled(record, now, settings, "cancel", words)
                changes += commit_of(draft, commit_id="", actor=f"schedule {name}", reason=words).changes
    return changes


def job_keys(ids: Sequence[str]) -> list[Key]:
    """Return the keys of jobs."""
    return [Key(JOB.name, job_id) for job_id in ids]


def not_fired(record: Record, now: datetime, error: Exception) -> Commit:
    """Return the commit of an undecidable schedule, to be retried later.

    The journal has the reason.
    """
    why = f"It could not fire: {type(error).__name__}: {error}"
    return Commit(changes=(postponed(record, now + TRY_AGAIN, Note(actor="clock", reason=why[:_WHY])),))
