"""What becomes of a schedule that is due: its policies, by the store's clock, with one commit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from tests.systems.orchestrator.house import House, beat, done

from interlock.errors import InvalidSchedule, ScheduleExists, TerminalState, UnknownSchedule
from interlock.store.records import Query
from interlock.systems.schedules.fires import job_id_of
from interlock.systems.schedules.schedules import ScheduleService
from interlock.wire.jobs import JobSpec, JobView, Unique
from interlock.wire.schedules import ScheduleSpec, ScheduleView

HOUR = 3_600.0
MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
async def house() -> AsyncIterator[House]:
    opened = await House().open()
    yield opened
    await opened.close()


@pytest.fixture
def schedules(house: House) -> ScheduleService:
    return house.port.services.schedules


def hourly(**how: Any) -> ScheduleSpec:
    return ScheduleSpec(job=JobSpec(task="report", queue="default"), **{"every": "1h", **how})


async def jobs(house: House) -> list[JobView]:
    """Return all jobs by their fire times."""
    found, _ = await house.jobs.find(Query(kind="job", limit=1_000))
    return sorted(found, key=lambda view: view.scheduled_for or MIDNIGHT)


async def times(house: House) -> list[float]:
    """Return the fire times of all jobs, in hours after midnight."""
    return [
        (view.scheduled_for - MIDNIGHT) / timedelta(hours=1)
        for view in await jobs(house)
        if view.scheduled_for
    ]


async def finish(house: House) -> None:
    """Do whatever there is to do."""
    for grant in await house.claim():
        await house.heard(done(grant))


async def test_a_fire_submits_one_job_that_carries_its_fire_time(
    house: House, schedules: ScheduleService
) -> None:
    made = await schedules.create("nightly", hourly())
    assert (made.state, made.text, made.next_at) == ("active", "every hour", MIDNIGHT + timedelta(hours=1))
    await house.later(HOUR - 1)
    assert await jobs(house) == []
    await house.later(2)
    (job,) = await jobs(house)
    at = MIDNIGHT + timedelta(hours=1)
    assert (job.id, job.schedule, job.scheduled_for) == (job_id_of("nightly", at), "nightly", at)
    view = await schedules.get("nightly")
    assert (view.last_at, view.next_at, view.submitted) == (at, at + timedelta(hours=1), 1)
    assert [(fire.job_id, fire.state) for fire in view.recent] == [(job.id, "PENDING")]
    (grant,) = await house.claim()
    assert grant.trace["interlock-scheduled-for"] == "2026-01-01T01:00:00Z"
    await house.recover(3)
    assert len(await jobs(house)) == 1


async def test_the_journal_of_a_schedule_records_the_fire_time_and_the_submitted_job(
    house: House, schedules: ScheduleService
) -> None:
    await schedules.create("nightly", hourly(), actor="ada")
    await house.later(HOUR)
    created, fired = await schedules.history("nightly")
    assert (created.note.actor, created.note.reason) == ("ada", "created")
    assert fired.note.reason == f"2026-01-01T01:00:00Z as {(await jobs(house))[0].id}"
    assert [(step.event, step.target) for step in fired.note.steps] == [("due", "active")]


@pytest.mark.parametrize(
    ("how", "submitted", "skipped"),
    [
        ({"catch_up": "none"}, [], 5),
        ({"catch_up": "latest"}, [5], 4),
        ({"catch_up": "all"}, [1, 2, 3, 4, 5], 0),
        ({"catch_up": "all", "catch_up_limit": 2}, [4, 5], 3),
    ],
)
async def test_the_catch_up_policy_decides_which_missed_fires_are_submitted_after_downtime(
    house: House, schedules: ScheduleService, how: dict[str, Any], submitted: list[int], skipped: int
) -> None:
    await schedules.create("nightly", hourly(overlap="allow", **how))
    await house.later(5.5 * HOUR)
    assert await times(house) == submitted
    view = await schedules.get("nightly")
    assert (view.skipped, view.next_at) == (skipped, MIDNIGHT + timedelta(hours=6))


async def test_a_fire_that_is_seen_within_a_minute_is_not_a_missed_one(
    house: House, schedules: ScheduleService
) -> None:
    await schedules.create("nightly", hourly(catch_up="none"))
    await house.later(HOUR + 59)
    assert await times(house) == [1]


async def test_years_of_missed_fires_cost_no_more_than_a_few(
    house: House, schedules: ScheduleService
) -> None:
    await schedules.create("tick", hourly(every="1s", overlap="allow", catch_up="all", catch_up_limit=100))
    await house.later(3 * 365 * 24 * HOUR)
    assert len(await jobs(house)) == 100
    assert (await schedules.get("tick")).next_at == await house.store.now() + timedelta(seconds=1)


async def test_skip_leaves_out_a_fire_while_the_job_before_has_not_ended(
    house: House, schedules: ScheduleService
) -> None:
    await schedules.create("nightly", hourly())
    for _ in range(3):
        await house.later(HOUR)
    assert await times(house) == [1]
    assert (await schedules.get("nightly")).skipped == 2
    await finish(house)
    await house.later(HOUR)
    assert await times(house) == [1, 4]


async def test_queue_submits_one_after_the_other(house: House, schedules: ScheduleService) -> None:
    await schedules.create("nightly", hourly(overlap="queue"))
    for _ in range(3):
        await house.later(HOUR)
    assert await times(house) == [1]
    assert len((await schedules.get("nightly")).waiting) == 2
    for expected in ([1, 2], [1, 2, 3]):
        await finish(house)
        await house.later(6)
        assert await times(house) == expected
    assert (await schedules.get("nightly")).waiting == ()


async def test_looking_after_a_fire_that_waits_does_not_fill_the_journal(
    house: House, schedules: ScheduleService
) -> None:
    await schedules.create("nightly", hourly(overlap="queue"))
    await house.later(HOUR)
    await house.later(HOUR)
    before = len(await schedules.history("nightly"))
    for _ in range(20):
        await house.later(6)
    assert len(await schedules.history("nightly")) == before


async def test_cancel_stops_the_old_job_in_the_commit_of_the_new_one(
    house: House, schedules: ScheduleService
) -> None:
    await schedules.create("nightly", hourly(overlap="cancel"))
    await house.later(HOUR)
    (grant,) = await house.claim()
    house.clock.jump(100)
    await house.heard(beat(grant))
    house.clock.jump(HOUR - 100)
    await schedules.sweep()
    old, new = await jobs(house)
    assert (old.stop_reason, new.state) == ("cancel", "PENDING")
    assert old.cancel_reason == "the next job of the schedule nightly is due"
    assert old.updated_at == new.created_at == (await schedules.get("nightly")).updated_at


async def test_overlap_allow_submits_a_job_although_earlier_jobs_have_not_ended(
    house: House, schedules: ScheduleService
) -> None:
    await schedules.create("nightly", hourly(overlap="allow"))
    for _ in range(3):
        await house.later(HOUR)
    assert await times(house) == [1, 2, 3]
    assert (await schedules.get("nightly")).skipped == 0


async def test_a_paused_schedule_fires_nothing_and_catches_up_with_nothing(
    house: House, schedules: ScheduleService
) -> None:
    await schedules.create("nightly", hourly(catch_up="all"))
    paused = await schedules.pause("nightly", reason="stocktaking", actor="ada")
    assert (paused.state, paused.reason, paused.by, paused.next_at) == ("paused", "stocktaking", "ada", None)
    await house.later(5 * HOUR)
    assert await jobs(house) == []
    assert (await schedules.pause("nightly")).version == paused.version
    resumed = await schedules.resume("nightly")
    assert (resumed.state, resumed.next_at) == ("active", MIDNIGHT + timedelta(hours=6))
    assert await schedules.next("nightly", 2) == (
        MIDNIGHT + timedelta(hours=6),
        MIDNIGHT + timedelta(hours=7),
    )
    await house.later(HOUR)
    assert await times(house) == [6]


async def test_run_now_submits_a_job_at_once_and_once_under_a_request_id(
    house: House, schedules: ScheduleService
) -> None:
    await schedules.create("nightly", hourly())
    await schedules.pause("nightly")
    fire = await schedules.run("nightly", request_id="r1")
    assert await schedules.run("nightly", request_id="r1") == fire
    (job,) = await jobs(house)
    assert (job.id, job.scheduled_for, fire.how) == (fire.job_id, MIDNIGHT, "run")
    await schedules.resume("nightly")
    await house.later(HOUR)
    assert len(await jobs(house)) == 1, "it counts as the job before"


async def test_backfill_submits_jobs_only_for_fire_times_that_have_none(
    house: House, schedules: ScheduleService
) -> None:
    await schedules.create("nightly", hourly(overlap="allow"))
    await house.later(2 * HOUR)
    await house.later(3 * HOUR)
    assert await times(house) == [2, 5]
    before = await schedules.get("nightly")
    foreseen = await schedules.backfill("nightly", "2026-01-01", "2026-01-01T06:00", dry_run=True)
    assert ([at.hour for at in foreseen.fires], foreseen.present, foreseen.jobs) == ([0, 1, 3, 4], 2, ())
    assert (await schedules.get("nightly"), await times(house)) == (before, [2, 5]), "nothing was submitted"
    done = await schedules.backfill("nightly", MIDNIGHT, MIDNIGHT + timedelta(hours=6), request_id="b1")
    assert (len(done.jobs), done.present) == (4, 2)
    assert await times(house) == [0, 1, 2, 3, 4, 5]
    again = await schedules.backfill("nightly", MIDNIGHT, MIDNIGHT + timedelta(hours=6), request_id="b1")
    assert again == done
    twice = await schedules.backfill("nightly", "2026-01-01", "2026-01-01T06:00")
    assert (twice.jobs, twice.present) == ((), 6)


async def test_a_backfill_can_reach_from_the_first_to_the_last_day_of_the_calendar(
    house: House, schedules: ScheduleService
) -> None:
    await schedules.create("nightly", hourly(start="2026-01-01", end="9999-12-31"))
    house.clock.jump(3 * HOUR)
    foreseen = await schedules.backfill("nightly", "0001-01-01", "9999-12-31", dry_run=True)
    assert [at.hour for at in foreseen.fires] == [0, 1, 2, 3]
    with pytest.raises(InvalidSchedule, match="no past fire time"):
        await schedules.backfill("nightly", "9999-12-31", "0001-01-01")


async def test_a_fire_that_was_backfilled_before_it_was_seen_is_not_submitted_again(
    house: House, schedules: ScheduleService
) -> None:
    await schedules.create("nightly", hourly())
    house.clock.jump(HOUR + 1)
    await schedules.backfill("nightly", "2026-01-01T01:00", "2026-01-01T02:00")
    await house.recover()
    assert await times(house) == [1]
    assert (await schedules.get("nightly")).last_at == MIDNIGHT + timedelta(hours=1)


async def test_a_queued_backfill_submits_one_job_at_a_time_even_with_overlap_skip(
    house: House, schedules: ScheduleService
) -> None:
    await schedules.create("nightly", hourly(overlap="skip", start="2026-01-03"))
    house.clock.jump(10)
    with pytest.raises(InvalidSchedule, match="no past fire time"):
        await schedules.backfill("nightly", "2026-01-01", "2026-01-02")
    await schedules.put("nightly", hourly(overlap="skip"))
    house.clock.jump(3 * HOUR)
    await schedules.sweep()
    await finish(house)
    done = await schedules.backfill("nightly", "2026-01-01", "2026-01-01T03:00", queued=True)
    assert (done.jobs, done.waiting) == ((), 3)
    for number in (2, 3, 4):
        await house.later(6)
        assert len(await jobs(house)) == number
        await finish(house)


async def test_too_long_a_backfill_is_refused(house: House, schedules: ScheduleService) -> None:
    await schedules.create("tick", hourly(every="1m"))
    await house.later(24 * HOUR)
    with pytest.raises(InvalidSchedule, match="more than 500 fire times"):
        await schedules.backfill("tick", "2026-01-01", "2026-01-02")


async def test_an_edit_while_it_is_due_fires_by_the_new_specification_only(
    house: House, schedules: ScheduleService
) -> None:
    await schedules.create("nightly", hourly())
    house.clock.jump(HOUR + 5)
    edited = await schedules.put("nightly", hourly(every="2h"))
    assert edited.next_at == MIDNIGHT + timedelta(hours=2)
    await house.recover()
    assert await jobs(house) == []
    await house.later(HOUR)
    assert await times(house) == [2]


async def test_the_same_specification_changes_nothing_and_another_keeps_the_pause(
    house: House, schedules: ScheduleService
) -> None:
    made = await schedules.put("nightly", hourly(), source="code")
    assert (await schedules.put("nightly", hourly(), source="code")).version == made.version
    read = msgspec.json.decode(msgspec.json.encode(hourly()), type=ScheduleSpec)
    assert (await schedules.put("nightly", read, source="code")).version == made.version
    await schedules.pause("nightly")
    changed = await schedules.put("nightly", hourly(every="2h"))
    assert (changed.state, changed.spec.every) == ("paused", "2h")
    with pytest.raises(ScheduleExists):
        await schedules.create("nightly", hourly())


async def test_a_deleted_schedule_is_not_brought_back_by_the_same_declaration(
    house: House, schedules: ScheduleService
) -> None:
    await schedules.put("nightly", hourly())
    assert (await schedules.delete("nightly", reason="nobody reads it")).state == "ended"
    assert (await schedules.put("nightly", hourly())).state == "ended"
    await house.later(2 * HOUR)
    assert await jobs(house) == []
    for act in (schedules.pause, schedules.resume, schedules.run):
        with pytest.raises(TerminalState):
            await act("nightly")
    assert (await schedules.put("nightly", hourly(every="2h"))).state == "active"
    await schedules.delete("nightly")
    assert (await schedules.create("nightly", hourly())).state == "active"


async def test_a_schedule_ends_after_its_last_fire(house: House, schedules: ScheduleService) -> None:
    await schedules.create("once", hourly(every="", at=("2026-01-01T01:00", "2026-01-01T02:00")))
    await house.later(HOUR)
    await finish(house)
    assert (await schedules.get("once")).state == "active"
    await house.later(HOUR)
    ended = await schedules.get("once")
    assert (ended.state, ended.next_at, ended.submitted) == ("ended", None, 2)
    assert await schedules.next("once") == ()
    with pytest.raises(InvalidSchedule, match="would never fire"):
        await schedules.create("late", hourly(every="", at=("2025-01-01",)))


@pytest.mark.parametrize(
    ("field", "value"), [("unique", Unique()), ("at", MIDNIGHT), ("not_after", MIDNIGHT)]
)
async def test_a_schedule_refuses_a_job_with_unique_at_or_not_after(
    schedules: ScheduleService, field: str, value: object
) -> None:
    spec = hourly()
    spec = msgspec.structs.replace(spec, job=msgspec.structs.replace(spec.job, **{field: value}))
    with pytest.raises(InvalidSchedule, match=f"A job that a schedule submits has no {field}"):
        await schedules.create("hourly", spec)


async def test_a_schedule_whose_last_fire_passed_while_paused_ends_when_resumed(
    house: House, schedules: ScheduleService
) -> None:
    await schedules.create("once", hourly(every="", at=("2026-01-01T01:00",)))
    await schedules.pause("once")
    await house.later(2 * HOUR)
    assert (await schedules.resume("once")).state == "ended"


async def test_jitter_delays_the_job_and_not_the_fire_time(house: House, schedules: ScheduleService) -> None:
    made = await schedules.create("nightly", hourly(jitter="30m"))
    assert made.next_at is not None
    assert made.due_at is not None
    late = (made.due_at - made.next_at).total_seconds()
    assert 0 < late < 1_800
    await house.later(HOUR + late - 1)
    assert await jobs(house) == []
    await house.later(1)
    assert await times(house) == [1]


async def test_a_schedule_that_cannot_be_decided_about_does_not_hold_up_the_others(
    house: House, schedules: ScheduleService, monkeypatch: pytest.MonkeyPatch
) -> None:
    from interlock.systems.schedules import fires

    honest = fires.calendar_of

    def gone(name: str, spec: ScheduleSpec) -> Any:
        if name == "broken":
            raise InvalidSchedule("There is no time zone Atlantis.", todo="Find it.")
        return honest(name, spec)

    await schedules.create("broken", hourly())
    await schedules.create("sound", hourly())
    monkeypatch.setattr(fires, "calendar_of", gone)
    await house.later(HOUR)
    assert [view.schedule for view in await jobs(house)] == ["sound"]
    assert "no time zone Atlantis" in (await schedules.history("broken"))[-1].note.reason
    monkeypatch.setattr(fires, "calendar_of", honest)
    await house.later(601)
    assert {view.schedule for view in await jobs(house)} == {"sound", "broken"}


async def test_the_job_of_an_ended_task_is_submitted_and_waits_for_a_worker(
    house: House, schedules: ScheduleService
) -> None:
    """A task that no worker knows any more: the fire is not lost, and the job says what it waits for."""
    await schedules.create("nightly", ScheduleSpec(job=JobSpec(task="gone.away"), every="1h"))
    await house.later(HOUR)
    (job,) = await jobs(house)
    assert (job.state, job.task) == ("PENDING", "gone.away")


async def test_names_and_specs_that_cannot_be_are_refused(schedules: ScheduleService) -> None:
    with pytest.raises(InvalidSchedule, match="cannot be called"):
        await schedules.create("nightly report", hourly())
    with pytest.raises(InvalidSchedule, match="has no parent"):
        await schedules.create("x", ScheduleSpec(job=JobSpec(task="a", parent_job_id="j_1"), every="1h"))
    with pytest.raises(UnknownSchedule):
        await schedules.get("nobody")


async def test_another_job_with_the_same_id_does_not_stop_a_fire(
    house: House, schedules: ScheduleService
) -> None:
    from interlock.store.records import Commit
    from interlock.systems.orchestrator.submission import new_job

    at = MIDNIGHT + timedelta(hours=1)
    draft = new_job(JobSpec(task="stranger"), job_id_of("nightly", at), MIDNIGHT, house.settings)
    await house.store.commit([Commit(changes=(draft.change(commit_id="m"),))])
    await schedules.create("nightly", hourly())
    await house.later(HOUR)
    assert [(view.task, view.id) for view in await jobs(house) if view.schedule] == [
        ("report", job_id_of("nightly", at, 1))
    ]


def view_names(views: list[ScheduleView]) -> list[str]:
    return sorted(view.name for view in views)


async def test_schedules_are_listed_by_state(schedules: ScheduleService) -> None:
    for name in ("a", "b", "c"):
        await schedules.create(name, hourly())
    await schedules.pause("b")
    await schedules.delete("c")
    assert view_names((await schedules.find())[0]) == ["a", "b", "c"]
    assert view_names((await schedules.find(states=["active", "paused"]))[0]) == ["a", "b"]
    page, cursor = await schedules.find(limit=2)
    rest, end = await schedules.find(limit=2, cursor=cursor)
    assert (view_names(page + rest), end) == (["a", "b", "c"], "")
