"""A runner that keeps losing work is given none; a job that kills runners is no fault of theirs."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from tests.systems.orchestrator.house import TTL_S, House, done

from interlock.engine.outbox import MESSAGE, SENDING, WAITING
from interlock.errors import UnknownWorker
from interlock.store.records import Query
from interlock.systems.quarantine import STANDING, Loss, Quarantine, name_of, occasions
from interlock.systems.settings import DEFAULT_SETTINGS
from interlock.wire.workers import StandingView

LASTS_S = DEFAULT_SETTINGS.quarantine.lasts_s
WITHIN_S = DEFAULT_SETTINGS.quarantine.within_s


def watching(house: House) -> Quarantine:
    return house.port.services.quarantine


async def standing(house: House, runner: str) -> StandingView | None:
    return next((view for view in await watching(house).list() if view.runner == runner), None)


async def lose(house: House, runner: str, *, jobs: int = 1) -> list[str]:
    """The runner takes some jobs and is not heard of again; somebody else does them."""
    ids = [await house.submit() for _ in range(jobs)]
    for _ in range(jobs):
        await house.grant(f"{runner}#life")
    house.clock.jump(TTL_S + 1)
    await house.port.recover()
    for grant in await house.claim(limit=100):
        await house.heard(done(grant))
    return ids


async def test_a_runner_that_keeps_losing_work_is_quarantined_and_the_reason_is_shown(house: House) -> None:
    lost = [(await lose(house, "bad"))[0] for _ in range(2)]
    view = await standing(house, "bad")
    assert view is not None
    assert (view.state, view.occasions, view.jobs) == ("watched", 2, tuple(lost))
    lost += await lose(house, "bad")
    view = await standing(house, "bad")
    assert view is not None
    assert (view.state, view.jobs) == ("quarantined", tuple(lost))
    assert "3 occasions" in view.explanation
    assert lost[-1] in view.explanation
    assert "interlock worker lift bad" in view.todo
    await house.submit()
    assert await house.claim("bad#another life") == []
    assert watching(house).why_not("bad#another life") == view.explanation
    waiting = await house.jobs.explain(await house.submit())
    assert "; 1 worker is quarantined (interlock worker quarantined)." in waiting.sentence
    assert len(await house.claim("good#1")) == 2
    assert not await house.faults()


async def test_another_orchestrator_on_the_store_enforces_a_quarantine_after_its_next_sweep(
    house: House,
) -> None:
    neighbour = await house.neighbour()
    for _ in range(3):
        await lose(house, "bad")
    await house.submit()
    await neighbour.port.recover()
    assert await neighbour.claim("bad#2") == []
    await neighbour.close()


async def test_an_accident_with_many_jobs_counts_once(house: House) -> None:
    await lose(house, "bad", jobs=10)
    view = await standing(house, "bad")
    assert view is not None
    assert (view.state, view.occasions, len(view.jobs)) == ("watched", 1, 10)


async def test_an_accident_with_many_jobs_changes_the_record_of_the_runner_once(house: House) -> None:
    await lose(house, "bad", jobs=100)
    (record,) = (await house.store.find(Query(kind=STANDING.name))).records
    assert record.version == 1, "each change is a chance for a conflict between those who deliver messages"
    messages = Query(kind=MESSAGE.name, states=(WAITING, SENDING))
    assert not (await house.store.find(messages)).records
    assert not await house.faults()


async def test_concurrent_orchestrators_each_update_the_quarantine_record_at_most_once(house: House) -> None:
    neighbours = [await house.neighbour() for _ in range(4)]
    for _ in range(40):
        await house.submit()
    assert len(await house.claim("bad#life", limit=40)) == 40
    house.clock.jump(TTL_S + 1)
    await house.port.services.sweep()
    counted = [asyncio.create_task(each.port.services.quarantine.keep(limit=10)) for each in neighbours]
    assert sum(await asyncio.gather(*counted)) == 40
    (record,) = (await house.store.find(Query(kind=STANDING.name))).records
    assert record.version <= len(neighbours)
    view = await standing(house, "bad")
    assert view is not None
    assert len(view.jobs) == 40
    for each in neighbours:
        await each.close()


async def test_a_job_that_kills_every_runner_is_held_against_none_of_them(house: House) -> None:
    for _ in range(6):
        await house.submit(losses=2)
        for runner in ("one", "two", "three"):
            await house.grant(f"{runner}#1")
            house.clock.jump(TTL_S + 1)
            await house.port.recover()
        await house.port.recover()
    assert [view.state for view in await watching(house).list() if view.state == "quarantined"] == []
    assert all(view.occasions == 0 for view in await watching(house).list())


async def test_the_same_job_again_and_again_counts_once(house: House) -> None:
    await house.submit(losses=9)
    for _ in range(6):
        await house.grant("lonely#1")
        house.clock.jump(TTL_S + 1)
        await house.port.recover()
    view = await standing(house, "lonely")
    assert view is not None
    assert (view.state, view.occasions) == ("watched", 1)


async def test_a_quarantine_is_lifted_and_the_runner_begins_with_a_clean_sheet(house: House) -> None:
    for _ in range(3):
        await lose(house, "bad")
    view = await watching(house).lift("bad", actor="ann", reason="the disk was full")
    assert view.state == "cleared"
    await house.submit()
    assert len(await house.claim("bad#2")) == 1
    assert await standing(house, "bad") is None
    with pytest.raises(UnknownWorker, match="not quarantined"):
        await watching(house).lift("bad")
    await lose(house, "bad")
    view = await standing(house, "bad") or view
    assert (view.state, view.occasions) == ("watched", 1)


async def test_a_quarantine_ends_by_itself(house: House) -> None:
    for _ in range(3):
        await lose(house, "bad")
    house.clock.jump(LASTS_S + 1)
    await house.port.recover()
    await house.submit()
    assert len(await house.claim("bad#2")) == 1
    assert not await house.faults()


async def test_losses_outside_the_quarantine_window_are_removed(house: House) -> None:
    for _ in range(4):
        await lose(house, "old")
        house.clock.jump(WITHIN_S / 2)
        await house.port.recover()
    view = await standing(house, "old")
    assert view is not None
    assert view.state == "watched"
    house.clock.jump(WITHIN_S + 1)
    await house.port.recover()
    assert await standing(house, "old") is None


async def test_a_runner_that_completes_its_jobs_is_not_watched_for_quarantine(house: House) -> None:
    for _ in range(4):
        await house.heard(done(await house.started()))
    assert await watching(house).list() == []


def test_losses_that_are_close_in_time_count_as_one_occasion() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    at = [0, 50, 60, 400, 401, 1_000]
    assert occasions(Loss(f"j{n}", start + timedelta(seconds=s)) for n, s in enumerate(at)) == 3
    steadily = range(0, 600, 30)  # one that never stops losing is not one long accident
    assert occasions(Loss(f"j{s}", start + timedelta(seconds=s)) for s in steadily) == 7
    assert occasions([]) == 0
    assert (name_of("host/web-1#abc"), name_of("plain")) == ("host/web-1", "plain")
