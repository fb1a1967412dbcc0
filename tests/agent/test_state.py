"""The state of an agent: requests to it and the events of its workload are decided by the table.

Hours pass here at once: the clock of the event loop jumps to what comes next.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from tests.agent.household import Household
from tests.effort import pick

from interlock.agent.state import Message, Outbox
from interlock.errors import InvalidWorkload, TransitionRefused
from interlock.lifecycles.durations import Durations
from interlock.lifecycles.workload import ABORTING, FAILED, IDLE, READY, RUNNING, Status
from interlock.testing.clocks import VirtualTime


@pytest.fixture
async def house() -> AsyncIterator[Household]:
    with VirtualTime(asyncio.get_running_loop()).in_place():
        yield Household()


async def everything(outbox: Outbox) -> list[Message]:
    messages = []
    while (message := await outbox.next()) is not None:
        messages.append(message)
    return messages


def running(house: Household, workload_id: str = "w") -> Outbox:
    """One that was told to start now."""
    return house.agent_state.request(house.asked(workload_id, start_at_unix_ns=house.wall_ns()))


async def until(house: Household, state: str) -> None:
    while house.agent_state.state != state:
        await asyncio.sleep(0.01)


async def test_a_workload_runs_from_ready_to_completed_and_the_agent_is_idle_again(house: Household) -> None:
    outbox = house.agent_state.request(house.asked("w"))
    assert house.agent_state.state is READY
    house.agent_state.start("w", house.wall_ns() + 10**9)
    await until(house, RUNNING)
    house.family.work(3)
    house.family.end()
    messages = await everything(outbox)
    assert [one.report.status for one in messages][:1] == [Status.READY]
    assert (messages[-1].report.status, messages[-1].totals.operations) == (Status.COMPLETED, 3)
    assert house.agent_state.state is IDLE


async def test_a_busy_agent_refuses_a_request_before_it_validates_the_request(house: Household) -> None:
    running(house)
    with pytest.raises(TransitionRefused, match="the agent is busy") as refused:
        house.agent_state.request(house.asked("another", duration_s=-1.0))
    assert refused.value.facts["workload_id"] == "w"
    assert house.agent_state.record.workload_id == "w"


async def test_an_invalid_request_is_reported_with_all_its_faults_and_the_agent_is_idle_again(
    house: Household,
) -> None:
    outbox = house.agent_state.request(house.asked("w", duration_s=-1.0, rate=float("nan"), spec=b"[]"))
    assert house.agent_state.state is FAILED
    (only,) = await everything(outbox)
    assert (only.report.status, only.report.completed) == (Status.ERROR, True)
    for word in ("duration_s", "rate", "with has to be keys"):
        assert word in (only.report.error or "")
    assert house.agent_state.state is IDLE
    assert house.families == []


async def test_an_unread_error_does_not_keep_the_agent_busy(house: Household) -> None:
    house.agent_state.request(house.asked("w", duration_s=-1.0))
    await house.agent_state.until_idle(3_600)
    assert house.agent_state.state is IDLE


async def test_an_error_is_unread_after_the_time_that_the_settings_say() -> None:
    with VirtualTime(asyncio.get_running_loop()).in_place():
        house = Household(Durations(error_unread_s=100.0))
        house.agent_state.request(house.asked("w", duration_s=-1.0))
        await house.agent_state.until_idle(99.0)
        assert house.agent_state.state is FAILED
        await house.agent_state.until_idle(2.0)
        assert house.agent_state.state is IDLE


async def test_an_id_is_not_taken_twice(house: Household) -> None:
    house.agent_state.request(house.asked("w"))
    house.agent_state.abort("w")
    (only,) = await everything(house.agent_state.request(house.asked("w")))
    assert "before" in (only.report.error or "")


@pytest.mark.parametrize("ahead_s", [61, 3_600])
async def test_a_start_that_is_too_far_ahead_is_refused(house: Household, ahead_s: int) -> None:
    at = house.wall_ns() + ahead_s * 10**9
    (only,) = await everything(house.agent_state.request(house.asked("w", start_at_unix_ns=at)))
    assert "at most 60 s ahead" in (only.report.error or "")
    house.agent_state.request(house.asked("w2"))
    with pytest.raises(InvalidWorkload, match="at most 60 s ahead"):
        house.agent_state.start("w2", house.wall_ns() + ahead_s * 10**9)
    assert house.agent_state.state is READY


async def test_a_start_time_in_the_past_starts_at_once_and_returns_the_lateness(house: Household) -> None:
    house.agent_state.request(house.asked("w"))
    now_ns = house.monotonic_ns()
    assert house.agent_state.start("w", house.wall_ns() - 2 * 10**9) == 2 * 10**9
    await until(house, RUNNING)
    assert now_ns - house.family.order.start_at_ns == 2 * 10**9


async def preparing(house: Household) -> Outbox:
    """One that was told to start in ten seconds, and prepares for that since two."""
    outbox = house.agent_state.request(house.asked("w", prepare_s=2.0))
    house.agent_state.start("w", house.wall_ns() + 10 * 10**9)
    while not house.families:
        await asyncio.sleep(0.01)
    return outbox


def moves(house: Household) -> list[str]:
    lines = [json.loads(line) for line in house.log.getvalue().splitlines()]
    return [f"{line['from_state']} {line['to_state']}" for line in lines if "from_state" in line]


async def test_an_agent_is_ready_until_the_instant_also_while_its_process_prepares(house: Household) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    outbox = await preparing(house)
    assert 7.9 < loop.time() - began < 8.1
    assert house.agent_state.state is READY
    await until(house, RUNNING)
    assert 9.9 < loop.time() - began < 10.1
    assert len(house.families) == 1
    house.family.work(1)
    house.family.end()
    statuses = [one.report.status for one in await everything(outbox)]
    assert (statuses[0], statuses[-1]) == (Status.READY, Status.COMPLETED)


async def test_the_agent_is_running_when_its_process_starts_work_before_the_start_timer_fires(
    house: Household,
) -> None:
    await preparing(house)
    house.family.work(1)
    assert house.agent_state.state is RUNNING


@pytest.mark.parametrize("how", ["abort", "disconnected"])
async def test_an_abort_while_it_prepares_leads_from_ready_to_idle_and_nothing_is_left(
    house: Household, how: str
) -> None:
    outbox = await preparing(house)
    getattr(house.agent_state, how)("w")
    await house.agent_state.until_idle(1.0)
    assert house.family.heard == ["kill"]
    assert moves(house) == ["IDLE READY", "READY IDLE"]
    assert [one.report.status for one in await everything(outbox)] == [Status.READY, Status.ABORTED]
    await asyncio.sleep(100)
    assert house.agent_state.state is IDLE


async def test_an_agent_is_not_idle_until_the_prepared_process_of_an_aborted_workload_ends(
    house: Household,
) -> None:
    await preparing(house)
    family = house.family
    family.deaf_to = {"kill"}
    assert house.agent_state.abort("w")
    assert not house.agent_state.abort("w")
    await asyncio.sleep(30)
    assert house.agent_state.state is READY, "nor does it start"
    assert family.heard.count("kill") > 3, "it is killed again and again"
    with pytest.raises(TransitionRefused):
        house.agent_state.request(house.asked("another"))
    with pytest.raises(InvalidWorkload, match="aborted"):
        house.agent_state.start("w", house.wall_ns())
    family.end()
    await house.agent_state.until_idle(1)
    assert house.agent_state.state is IDLE


async def test_a_process_that_fails_to_prepare_is_reported_at_once_and_not_at_the_start_time(
    house: Household,
) -> None:
    outbox = await preparing(house)
    house.family.end("no such host")
    messages = await everything(outbox)
    assert [one.report.status for one in messages] == [Status.READY, Status.ERROR]
    assert (messages[-1].report.error, house.agent_state.state) == ("no such host", IDLE)
    assert moves(house) == ["IDLE READY", "READY RUNNING", "RUNNING FAILED", "FAILED IDLE"]


async def test_a_start_is_not_moved_while_a_process_prepares_for_it(house: Household) -> None:
    at_ns = house.wall_ns() + 10 * 10**9
    await preparing(house)
    assert house.agent_state.start("w", at_ns) == 0, "it may be told again"
    with pytest.raises(InvalidWorkload, match="already preparing for an announced start"):
        house.agent_state.start("w", at_ns + 1)
    await until(house, RUNNING)
    assert len(house.families) == 1


@pytest.mark.parametrize("at_ns", [-(2**63), -1])
async def test_a_start_before_1970_is_refused_and_not_calculated_with(house: Household, at_ns: int) -> None:
    (only,) = await everything(house.agent_state.request(house.asked("w", start_at_unix_ns=at_ns)))
    assert f"start_at_unix_ns is {at_ns} and must be nanoseconds since 1970" in (only.report.error or "")
    house.agent_state.request(house.asked("w2"))
    with pytest.raises(InvalidWorkload, match=r"[Nn]anoseconds since 1970"):
        house.agent_state.start("w2", at_ns)
    assert house.agent_state.start("w2", 0) == house.wall_ns(), "in the past it starts now, and says how late"


async def test_a_wall_clock_that_is_set_while_ready_does_not_move_the_start(
    house: Household,
) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    house.agent_state.request(house.asked("w"))
    house.agent_state.start("w", house.wall_ns() + 10 * 10**9)
    house.set_ahead_ns = 3_600 * 10**9
    await until(house, RUNNING)
    assert 9.9 < loop.time() - began < 10.1


async def test_a_second_start_request_replaces_the_start_time_of_the_first(house: Household) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    house.agent_state.request(house.asked("w"))
    house.agent_state.start("w", house.wall_ns() + 5 * 10**9)
    house.agent_state.start("w", house.wall_ns() + 20 * 10**9)
    await until(house, RUNNING)
    assert 19.9 < loop.time() - began < 20.1


async def test_a_running_workload_or_one_of_another_controller_cannot_be_started(house: Household) -> None:
    house.agent_state.request(house.asked("w"))
    with pytest.raises(TransitionRefused, match="another workload"):
        house.agent_state.start("old", house.wall_ns())
    house.agent_state.start("w", house.wall_ns())
    await until(house, RUNNING)
    with pytest.raises(TransitionRefused):
        house.agent_state.start("w", house.wall_ns())


async def test_a_workload_that_is_not_started_is_given_up_after_the_wait(house: Household) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    outbox = house.agent_state.request(house.asked("w"))
    messages = await everything(outbox)
    assert [one.report.status for one in messages] == [Status.READY, Status.ABORTED]
    assert messages[-1].report.error == "no start was announced"
    assert 59.9 < loop.time() - began < 60.1
    assert house.families == []


async def test_an_unresponsive_workload_is_terminated_after_5_seconds_and_killed_after_15(
    house: Household,
) -> None:
    loop = asyncio.get_running_loop()
    running(house)
    await until(house, RUNNING)
    house.family.deaf_to = {"ask", "terminate"}
    assert house.agent_state.abort("w")
    began = loop.time()
    assert not house.agent_state.abort("w"), "it is being aborted already; no timer is restarted"
    await asyncio.sleep(4.9)
    assert house.family.heard == ["ask"]
    await asyncio.sleep(0.2)
    assert house.family.heard == ["ask", "terminate"]
    assert house.agent_state.state is ABORTING
    await house.agent_state.until_idle(100)
    assert house.family.heard == ["ask", "terminate", "kill"]
    assert 14.9 < loop.time() - began < 15.1
    assert house.agent_state.record.final is Status.ABORTED


async def test_an_agent_is_not_idle_while_something_has_survived(house: Household) -> None:
    running(house)
    await until(house, RUNNING)
    family = house.family
    family.deaf_to = {"ask", "terminate", "kill"}
    house.agent_state.abort("w")
    await asyncio.sleep(100)
    assert house.agent_state.state is ABORTING
    assert family.heard.count("kill") > 3, "it is killed again and again"
    with pytest.raises(TransitionRefused):
        house.agent_state.request(house.asked("another"))
    family.end()
    await house.agent_state.until_idle(1)
    assert house.agent_state.state is IDLE


async def test_timers_of_an_old_workload_touch_no_new_one(house: Household) -> None:
    running(house, "old")
    await until(house, RUNNING)
    house.agent_state.abort("old")
    await house.agent_state.until_idle(1)
    running(house, "new")
    await until(house, RUNNING)
    house.agent_state.abort("old")
    house.agent_state.disconnected("old")
    await asyncio.sleep(50)
    assert house.agent_state.state is RUNNING
    assert house.family.heard == []


async def test_a_workload_that_fails_while_it_is_aborted_was_aborted(house: Household) -> None:
    outbox = running(house)
    await until(house, RUNNING)
    house.family.deaf_to = {"ask"}
    house.agent_state.abort("w")
    house.family.end("boom")
    messages = await everything(outbox)
    assert messages[-1].report.status is Status.ABORTED


async def test_a_workload_that_does_not_end_when_its_time_is_over_has_failed(house: Household) -> None:
    workload = house.asked("w", duration_s=10.0, start_at_unix_ns=house.wall_ns())
    outbox = house.agent_state.request(workload)
    await until(house, RUNNING)
    house.family.deaf_to = {"terminate"}
    messages = await everything(outbox)
    assert house.family.heard == ["terminate", "kill"]
    assert (messages[-1].report.status, house.agent_state.state) == (Status.ERROR, IDLE)
    assert "its duration was over" in (messages[-1].report.error or "")


async def test_an_agent_that_is_stopped_stops_its_workload_first(house: Household) -> None:
    running(house)
    await until(house, RUNNING)
    await house.agent_state.close()
    assert (house.agent_state.state, house.family.heard) == (IDLE, ["ask"])


async def test_an_abort_within_a_millisecond_of_the_start_takes_one_of_two_ways(
    house: Household,
) -> None:
    """Many times; each way is taken, and nothing is left or said twice."""
    loop = asyncio.get_running_loop()
    ways = {"before": 0, "after": 0}
    trials = pick(100, 1_000)
    for trial in range(trials):
        spawned = len(house.families)
        outbox = house.agent_state.request(house.asked(f"w{trial}"))
        ahead_ns = 1_500_000
        loop.call_later((ahead_ns + (trial - trials / 2) * 2_000) / 1e9, house.agent_state.abort, f"w{trial}")
        house.agent_state.start(f"w{trial}", house.wall_ns() + ahead_ns)
        statuses = [one.report.status for one in await everything(outbox)]
        assert house.agent_state.state is IDLE
        assert (statuses[0], statuses[-1]) == (Status.READY, Status.ABORTED)
        assert set(statuses[1:-1]) <= {Status.RUNNING}
        if len(house.families) == spawned:
            ways["before"] += 1
        else:
            ways["after"] += 1
            assert house.family.heard == ["ask"]
    assert min(ways.values()) >= trials / 2 - 1, ways
