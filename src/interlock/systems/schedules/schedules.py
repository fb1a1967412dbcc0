"""`ScheduleService`: create, change, pause, run and backfill schedules, and fire those that are due."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from interlock.engine.loader import every_entry
from interlock.engine.recovery import commit_with_recovery
from interlock.engine.unit_of_work import Decision, Engine, IdempotencyKey
from interlock.errors import InvalidSchedule, ScheduleExists, StoreUnavailable, UnknownSchedule
from interlock.lifecycles import schedule
from interlock.lifecycles.job import PENDING
from interlock.lifecycles.schedule import ENDED, SCHEDULE
from interlock.machine import Event, Refusal
from interlock.store.records import Commit, Entry, Key, Query, Record, Repeated, record_after
from interlock.store.validation import MAX_PAGE
from interlock.systems.schedules.fires import (
    MAX_LIVE,
    MAX_RECENT,
    MAX_WAITING,
    SCHEDULES,
    KnownJobs,
    ScheduleBody,
    calendar_of,
    check_schedule,
    decide_due,
    iso,
    job_keys,
    jobs_in,
    look_at,
    never_fires,
    new_schedule,
    new_scheduled_job,
    next_fire,
    not_fired,
    submitted,
)
from interlock.systems.schedules.settings import ScheduleSettings
from interlock.text import counted
from interlock.wire.calendar import Calendar
from interlock.wire.schedules import (
    MAX_BACKFILL,
    MAX_NEXT,
    NAME,
    Backfilled,
    Fire,
    FireView,
    ScheduleSpec,
    ScheduleView,
)

AT_ONCE = 50
"""Number of schedules decided concurrently."""
_ROUNDS = 10
"""Maximum rounds of loading missing jobs for a decision."""
T = TypeVar("T")


class ScheduleService:
    """The schedules in a store."""

    def __init__(
        self, engine: Engine, *, settings: ScheduleSettings, draw: Callable[[datetime], str]
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._draw = draw

    # Create and change

    async def create(
        self,
        name: str,
        spec: ScheduleSpec,
        *,
        source: str = "",
        actor: str = "",
        request_id: str | None = None,
    ) -> ScheduleView:
        """Create a schedule; one of that name must not exist, or must have ended."""
        return await self._put(name, spec, source, actor, request_id, replace=False)

    async def put(
        self,
        name: str,
        spec: ScheduleSpec,
        *,
        source: str = "",
        actor: str = "",
        request_id: str | None = None,
    ) -> ScheduleView:
        """Create or update a schedule; an equal specification has no effect.

        An ended schedule restarts only with another specification, so that a program that declares it at
        every start does not bring it back.
        """
        return await self._put(name, spec, source, actor, request_id, replace=True)

    async def _put(
        self, name: str, spec: ScheduleSpec, source: str, actor: str, request_id: str | None, *, replace: bool
    ) -> ScheduleView:
        _check_name(name)
        calendar = check_schedule(name, spec, self._settings)

        def decide(record: Record | None, now: datetime) -> Commit | None:
            if record is None:
                made = new_schedule(name, spec, now, source=source, actor=actor, calendar=calendar)
                return Commit(changes=(made.change(actor=actor, reason="created", note=True),))
            if record.state != ENDED and not replace:
                raise _exists(name)
            body = SCHEDULES.body_of(record)
            if replace and _is_same_spec(body.spec, spec):
                return None
            look = look_at(now, self._settings)
            change = _edited(record, body, spec, calendar, now, look, source=source, actor=actor)
            return Commit(changes=(change,))

        verb = "put" if replace else "create"
        return await self._changed(name, f"{verb} schedule", (spec, source), decide, request_id)

    async def pause(
        self, name: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> ScheduleView:
        """Pause a schedule; fires in the meantime are not caught up."""
        return await self._move(
            name, lambda _, now: schedule.Pause(at=now), reason, actor, request_id, "pause"
        )

    async def resume(
        self, name: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> ScheduleView:
        """Resume a schedule, from the next fire on."""

        def event(body: ScheduleBody, now: datetime) -> Event:
            next_at, due_at = next_fire(calendar_of(name, body.spec), now)
            if body.waiting:
                due_at = min(due_at, now) if due_at else now
            return schedule.Resume(at=now, next_at=next_at, due_at=due_at)

        return await self._move(name, event, reason, actor, request_id, "resume")

    async def delete(
        self, name: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> ScheduleView:
        """End a schedule; its submitted jobs continue."""
        return await self._move(
            name, lambda _, now: schedule.Delete(at=now), reason, actor, request_id, "delete"
        )

    async def _move(
        self,
        name: str,
        event: Callable[[ScheduleBody, datetime], Event],
        reason: str,
        actor: str,
        request_id: str | None,
        verb: str,
    ) -> ScheduleView:
        def decide(record: Record | None, now: datetime) -> Commit | None:
            record = _present(name, record)
            entity = SCHEDULES.of(record, now)
            refused = entity.send(event(entity.body, now))
            if refused is not None:
                if refused.kind is Refusal.IGNORED:
                    return None
                raise refused.error()
            entity.body = msgspec.structs.replace(entity.body, reason=reason, by=actor)
            return Commit(changes=(entity.change(actor=actor, reason=reason, note=True),))

        return await self._changed(name, f"{verb} schedule", reason, decide, request_id)

    async def _changed(
        self,
        name: str,
        what: str,
        content: object,
        decide: Callable[[Record | None, datetime], Commit | None],
        request_id: str | None,
    ) -> ScheduleView:
        idempotency_key = self._engine.key_for(request_id, f"{what} {name}", content)

        def decision(found: Sequence[Record | None], now: datetime) -> Decision[Record | None]:
            commit = decide(found[0], now)
            if commit is None:
                return Decision(found[0])
            after = record_after(commit.changes[0], found[0], now)
            return Decision(after, _with_request(idempotency_key, commit, b"null"))

        async def do() -> ScheduleView:
            applied = await self._engine.apply_once(idempotency_key, [_key(name)], decision)
            if isinstance(applied, Repeated) or applied.answer is None:
                return await self.get(name)
            return (await self._views([applied.answer]))[0]

        return await self._engine.answer_once(idempotency_key, ScheduleView, do)

    # Manual submission

    async def run(
        self, name: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> FireView:
        """Submit a job of the schedule now, even if it is paused.

        The overlap policy does not apply.
        """
        idempotency_key = self._engine.key_for(request_id, f"run schedule {name}", reason)

        def decide(found: Sequence[Record | None], now: datetime) -> Decision[FireView]:
            record = _present(name, found[0])
            entity = SCHEDULES.of(record, now)
            body, job_id = entity.body, self._draw(now)
            live = body.live if body.spec.overlap == "allow" else (*body.live, job_id)[-MAX_LIVE:]
            entity.must(schedule.RunNow(at=now, live=live))
            fire = Fire(scheduled_for=now, job_id=job_id, how="run")
            entity.body = msgspec.structs.replace(entity.body, recent=(fire, *body.recent)[:MAX_RECENT])
            new = new_scheduled_job(name, body.spec.job, now, job_id, now, self._settings.jobs)
            note = f"{reason}; as {job_id}" if reason else f"as {job_id}"
            view = FireView(scheduled_for=now, job_id=job_id, how="run", state=str(new[0].state))
            commit = Commit(changes=(entity.change(actor=actor, reason=note, note=True), *new))
            return Decision(view, _with_request(idempotency_key, commit, msgspec.json.encode(view)))

        applied = await self._engine.apply_once(idempotency_key, [_key(name)], decide)
        return _answer(applied, FireView)

    async def backfill(
        self,
        name: str,
        since: str | datetime,
        until: str | datetime,
        *,
        queued: bool = False,
        dry_run: bool = False,
        reason: str = "",
        actor: str = "",
        request_id: str | None = None,
    ) -> Backfilled:
        """Submit jobs for past fire times in a period that have none.

        With `queued` one after the other: each waits for the previous one to end. With `dry_run` submit
        nothing, and return the fire times that would get a job.
        """
        first, last = (each if isinstance(each, str) else iso(each) for each in (since, until))
        once = None if dry_run else request_id  # nothing is done, so nothing has to be done once
        idempotency_key = self._engine.key_for(
            once, f"backfill schedule {name}", (first, last, queued, reason)
        )

        def decide(record: Record | None, jobs: KnownJobs, now: datetime) -> Decision[Backfilled] | None:
            entity = SCHEDULES.of(_present(name, record), now)
            body = entity.body
            fires = _past_fires(calendar_of(name, body.spec), first, last, now)
            made, new = submitted(name, body.spec.job, fires, "backfill", jobs, now, self._settings.jobs)
            if jobs.missing:
                return None
            created = {change.id for change in new}
            fresh = [fire for fire in made if fire.job_id in created]
            waiting = body.waiting
            if queued:
                waiting = (*waiting, *(fire.scheduled_for for fire in fresh))[:MAX_WAITING]
                new, answer = [], Backfilled(waiting=len(fresh), present=len(made) - len(fresh))
            else:
                views = tuple(_fire_view(fire, str(PENDING)) for fire in fresh)
                answer = Backfilled(jobs=views, present=len(made) - len(fresh))
            due_at = body.due_at
            if waiting and due_at is not None:
                due_at = min(due_at, look_at(now, self._settings) if body.live else now)
            entity.must(schedule.Backfill(at=now, submitted=jobs_in(new), waiting=waiting, due_at=due_at))
            if dry_run:
                return Decision(_preview_of(fresh, answer.present))
            if not queued:
                recent = (*reversed(fresh), *body.recent)[:MAX_RECENT]
                entity.body = msgspec.structs.replace(entity.body, recent=recent)
            note = f"{counted(len(fresh), 'fire')} from {first} until {last}"
            change = entity.change(actor=actor, reason=f"{reason}; {note}" if reason else note, note=True)
            commit = Commit(changes=(change, *new))
            return Decision(answer, _with_request(idempotency_key, commit, msgspec.json.encode(answer)))

        if idempotency_key is not None and isinstance(
            before := await self._engine.recall(idempotency_key), Repeated
        ):
            return msgspec.json.decode(before.recorded.answer.body, type=Backfilled)
        return await self._with_jobs(name, decide, (), Backfilled, idempotency_key)

    # Views

    async def get(self, name: str) -> ScheduleView:
        """Return a schedule."""
        return (await self._views([await self._load(name)], recent=MAX_RECENT))[0]

    async def find(
        self, *, states: Sequence[str] = (), limit: int = 100, cursor: str = ""
    ) -> tuple[list[ScheduleView], str]:
        """Return a page of schedules, newest first, and the next cursor."""
        query = Query(
            kind=SCHEDULE.name,
            states=tuple(str(SCHEDULE.state(each)) for each in states),
            limit=min(limit, MAX_PAGE),
            cursor=cursor,
        )
        page = await self._engine.store.find(query)
        return await self._views(page.records, recent=1), page.cursor

    async def next(self, name: str, count: int = 10) -> tuple[datetime, ...]:
        """Return the next fire times; for a paused schedule, those after a resume."""
        record = await self._load(name)
        if record.state == ENDED:
            return ()
        body = SCHEDULES.body_of(record)
        after = await self._engine.clock.now()
        if body.next_at is not None:
            after = body.next_at - timedelta(microseconds=1)
        times = calendar_of(name, body.spec).from_(after)
        return tuple(at for at, _ in zip(times, range(min(count, MAX_NEXT)), strict=False))

    async def history(self, name: str) -> list[Entry]:
        """Return the history of a schedule, oldest first."""
        record = await self._load(name)
        return [entry async for entry in every_entry(self._engine.store, record.key)]

    async def _views(self, records: Sequence[Record], recent: int = MAX_RECENT) -> list[ScheduleView]:
        bodies = [SCHEDULES.body_of(record) for record in records]
        ids = list(dict.fromkeys(fire.job_id for body in bodies for fire in body.recent[:recent]))
        found = await self._engine.store.load(job_keys(ids)) if ids else []
        states = {record.id: str(record.state) for record in found if record is not None}
        return [view_of(record, body, states, recent) for record, body in zip(records, bodies, strict=True)]

    async def _load(self, name: str) -> Record:
        (record,) = await self._engine.load([_key(name)])
        return _present(name, record)

    # Firing

    async def sweep(self, *, limit: int = 500) -> int:
        """Fire due schedules; return their number."""
        found: list[Record] = []
        seen: list[datetime] = []

        def collect(records: Sequence[Record], now: datetime) -> list[Commit]:
            found[:], seen[:] = records, [now]
            return []

        await self._engine.due([SCHEDULE.name], limit, collect)
        for start in range(0, len(found), AT_ONCE):
            await _all(self._fire(record, seen[0]) for record in found[start : start + AT_ONCE])
        return len(found)

    async def _fire(self, record: Record, due: datetime) -> None:
        """Fire one schedule; its errors must not affect the others."""

        def decide(found: Record | None, jobs: KnownJobs, now: datetime) -> Decision[None] | None:
            if found is None:
                return Decision(None)
            commit = decide_due(found, jobs, max(now, due), self._settings)
            return None if jobs.missing else Decision(None, commit)

        try:
            await self._with_jobs(record.id, decide, self._likely_jobs(record, due), type(None), None)
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - one schedule with a fault must not stop all others
            stamped = self._engine.stamped(not_fired(record, due, error), [record])
            await commit_with_recovery(self._engine.store, self._engine.committer, stamped)

    def _likely_jobs(self, record: Record, due: datetime) -> Sequence[str]:
        """Return the jobs that the decision is likely to need.

        They are loaded with the schedule.
        """
        jobs = KnownJobs({})
        decide_due(record, jobs, due, self._settings)
        return sorted(jobs.missing)

    async def _with_jobs(
        self,
        name: str,
        decide: Callable[[Record | None, KnownJobs, datetime], Decision[T] | None],
        wanted: Iterable[str],
        kind: type[T],
        idempotency_key: IdempotencyKey | None,
    ) -> T:
        """Decide about a schedule with its jobs; load more until none is missing."""
        ids = list(dict.fromkeys(wanted))
        for _ in range(_ROUNDS):
            known: list[KnownJobs] = []

            def attempt(
                found: Sequence[Record | None],
                now: datetime,
                ids: Sequence[str] = tuple(ids),
                known: list[KnownJobs] = known,
            ) -> Decision[Any]:
                jobs = KnownJobs(dict(zip(ids, found[1:], strict=True)))
                known[:] = [jobs]
                return decide(found[0], jobs, now) or Decision(None)

            applied = await self._engine.apply_once(idempotency_key, [_key(name), *job_keys(ids)], attempt)
            if isinstance(applied, Repeated) or not known[0].missing:
                return _answer(applied, kind)
            ids = list(dict.fromkeys((*ids, *sorted(known[0].missing))))
        raise InvalidSchedule(
            f"The jobs of the schedule {name} keep changing.", todo="Try again.", facts={"schedule": name}
        )


def view_of(
    record: Record, body: ScheduleBody, states: Mapping[str, str], recent: int = MAX_RECENT
) -> ScheduleView:
    """Return a schedule for display."""
    return ScheduleView(
        name=record.id,
        state=str(record.state),
        version=record.version,
        text=_words(record.id, body.spec),
        spec=body.spec,
        next_at=body.next_at,
        due_at=body.due_at,
        last_at=body.last_at,
        submitted=body.submitted,
        skipped=body.skipped,
        waiting=body.waiting,
        recent=tuple(_fire_view(fire, states.get(fire.job_id, "")) for fire in body.recent[:recent]),
        source=body.source,
        reason=body.reason,
        by=body.by,
        created_at=record.created_at,
        updated_at=record.updated_at,
    )


def _words(name: str, spec: ScheduleSpec) -> str:
    try:
        return calendar_of(name, spec).text
    except InvalidSchedule as error:  # its time zone may be missing on this machine
        return error.sentence


def _preview_of(fresh: Sequence[Fire], present: int) -> Backfilled:
    return Backfilled(fires=tuple(fire.scheduled_for for fire in fresh), present=present)


def _fire_view(fire: Fire, state: str) -> FireView:
    return FireView(scheduled_for=fire.scheduled_for, job_id=fire.job_id, how=fire.how, state=state)


def _edited(
    record: Record,
    body: ScheduleBody,
    spec: ScheduleSpec,
    calendar: Calendar,
    now: datetime,
    look: datetime,
    *,
    source: str,
    actor: str,
) -> Any:
    """Return a schedule with another specification.

    A past unhandled fire is skipped.
    """
    next_at, due_at = next_fire(calendar, now)
    if due_at is None:
        raise never_fires(record.id, spec)
    if body.waiting:
        due_at = min(due_at, look)
    entity = SCHEDULES.of(record, now)
    entity.must(schedule.Edit(at=now, next_at=next_at, due_at=due_at))
    entity.body = msgspec.structs.replace(entity.body, spec=spec, source=source, by=actor, reason="")
    return entity.change(actor=actor, reason="edited", note=True)


def _past_fires(calendar: Calendar, since: str, until: str, now: datetime) -> list[datetime]:
    first, last = calendar.moment(since, "since"), calendar.moment(until, "until")
    tick = timedelta(microseconds=1)
    fires = calendar.between(first - tick, min(last - tick, now), MAX_BACKFILL + 1) if first < last else []
    if len(fires) > MAX_BACKFILL:
        raise InvalidSchedule(
            f"There are more than {MAX_BACKFILL} fire times from {since} until {until}.",
            todo="Backfill a shorter range, one after the other.",
            facts={"since": since, "until": until, "limit": MAX_BACKFILL},
        )
    if not fires:
        raise InvalidSchedule(
            f"There is no past fire time from {since} until {until}.",
            todo="Give a range in the past; `interlock schedule next` shows when it fires.",
            facts={"since": since, "until": until},
        )
    return fires


def _is_same_spec(one: ScheduleSpec, other: ScheduleSpec) -> bool:
    return _plain(one) == _plain(other)


def _plain(spec: ScheduleSpec) -> dict[str, Any]:
    """Return a normalised specification for comparison."""
    job = msgspec.structs.asdict(spec.job)
    return {**msgspec.structs.asdict(spec), "job": {**job, "input": msgspec.json.decode(job["input"])}}


def _with_request(idempotency_key: IdempotencyKey | None, commit: Commit, answer: bytes) -> Commit:
    return (
        commit
        if idempotency_key is None
        else msgspec.structs.replace(commit, request=idempotency_key.answered(answer))
    )


def _answer(applied: Any, kind: type[T]) -> T:
    if isinstance(applied, Repeated):
        return msgspec.json.decode(applied.recorded.answer.body, type=kind)
    answer: T = applied.answer
    return answer


async def _all(doing: Iterable[Any]) -> None:
    """Run all; raise the first failure when all have ended."""
    for result in await asyncio.gather(*doing, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def _key(name: str) -> Key:
    return Key(SCHEDULE.name, name)


def _present(name: str, record: Record | None) -> Record:
    if record is None:
        raise unknown(name)
    return record


def unknown(name: str) -> UnknownSchedule:
    """Return the error for a name that no schedule has."""
    return UnknownSchedule(
        f"There is no schedule {name[:64]}.",
        todo="See the names: interlock schedule list",
        facts={"schedule": name[:64]},
    )


def _exists(name: str) -> ScheduleExists:
    return ScheduleExists(
        f"There is a schedule {name} already.",
        todo=f"Change it with `interlock schedule create {name} --update ...`, or take another name.",
        facts={"schedule": name},
    )


def _check_name(name: str) -> None:
    if not re.fullmatch(NAME.strip("^$"), name):
        raise InvalidSchedule(
            f"A schedule cannot be called {name[:64]!r}.",
            todo="Use 1 to 60 letters, digits, dots, dashes and underscores, no dot or dash first.",
            facts={"schedule": name[:64]},
        )
