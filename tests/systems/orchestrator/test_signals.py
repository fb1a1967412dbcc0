"""Signals: a handler waits for one without a lease, gets each once, in order, and no crash loses one."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest
from tests.systems.orchestrator.house import RUNNER, TTL_S, House, beat, done, failed, release
from tests.systems.orchestrator.signals import ask, faults, parked, send, told, waiting
from tests.systems.orchestrator.test_every_store_alike import OpenHouse, open_house

from interlock.engine.clock import StoreClock
from interlock.errors import (
    InvalidSignal,
    LeaseExpired,
    MailboxFull,
    RequestIdReused,
    TerminalState,
    TooLarge,
    UnknownJob,
    UnknownLease,
)
from interlock.store.records import Query
from interlock.systems.settings import DEFAULT_SETTINGS, Settings
from interlock.wire.jobs import JobSpec
from interlock.wire.limits import LimitSpec
from interlock.wire.waits import MAX_KEPT, MAX_SIGNAL_BYTES, WaitRequest

__all__ = ["open_house"]


async def states(house: House, job_id: str) -> list[str]:
    """The states of all waits of a job, the oldest first."""
    found = await house.store.find(Query(kind="job_wait", parent=job_id, newest_first=False))
    return [record.state for record in found.records]


async def test_a_signal_wakes_a_job_that_waits_without_a_lease_on_every_store(open_house: OpenHouse) -> None:
    house = await open_house(DEFAULT_SETTINGS)
    first = await waiting(house)
    assert await house.states(first.job_id) == ("RUNNING", ["STALE", "CREATED"])
    assert await house.leases(first.job_id) == ["REVOKED"]
    assert await house.claim() == []
    view = await send(house, first, {"sum": 3}, request_id="r1")
    assert (view.id, view.number, view.state) == (f"{first.job_id}.signal.paid.1", 1, "RECEIVED")
    assert await send(house, first, {"sum": 3}, request_id="r1") == view, "a repeat sends nothing"
    with pytest.raises(RequestIdReused):
        await send(house, first, {"sum": 4}, request_id="r1")
    again = await house.grant()
    assert again.attempt == 2
    assert told(await ask(house, again)) == {"sum": 3}
    early = await send(house, again, "second")
    assert (early.number, early.state) == (2, "KEPT")
    assert told(await ask(house, again, number=2)) == "second"
    await parked(house, again, await ask(house, again, number=3, timeout_s=60.0))
    open_house.move(61)
    house.port.services.engine.clock = StoreClock(
        house.store, resync_s=-1.0
    )  # it notices that the clock was set
    await house.recover()
    third = await house.grant()
    assert (await ask(house, third, number=3)).state == "TIMED_OUT"
    await house.heard(done(third))
    assert await states(house, first.job_id) == ["RECEIVED", "RECEIVED", "TIMED_OUT"]
    assert (await house.view(first.job_id)).losses == 0
    assert await faults(house) == []


async def test_waits_get_the_signals_of_their_name_in_order_and_again_after_a_crash(house: House) -> None:
    grant = await house.started(retries=1)
    for number in (1, 2, 3):
        assert (await send(house, grant, number)).state == "KEPT"
    await send(house, grant, "other", name="shipped")
    assert [told(await ask(house, grant, number=number)) for number in (1, 2)] == [1, 2]
    await house.later(TTL_S + 1)
    second = await house.grant()
    assert [told(await ask(house, second, number=number)) for number in (1, 2, 3)] == [1, 2, 3]
    assert told(await ask(house, second, "shipped")) == "other"
    await house.heard(failed(second))
    await house.later(60)
    third = await house.grant()
    assert told(await ask(house, third)) == 1, "a retry sees what the attempt before has seen"
    assert await faults(house) == []


async def test_a_signal_between_the_wait_and_its_release_is_not_missed(house: House) -> None:
    grant = await house.started()
    answer = await ask(house, grant)
    assert answer.state == "WAITING"
    assert (await send(house, grant, 7)).state == "RECEIVED"
    await house.heard(release(grant, reason="signal", await_signal=answer.id))
    again = await house.grant()
    assert told(await ask(house, again)) == 7


async def test_a_worker_that_dies_after_the_wait_began_doubles_nothing(house: House) -> None:
    grant = await house.started()
    assert (await ask(house, grant)).state == "WAITING"
    await house.later(TTL_S + 1)
    with pytest.raises(LeaseExpired):
        await ask(house, grant)
    second = await house.grant()
    answer = await ask(house, second)
    await parked(house, second, answer)
    assert await states(house, grant.job_id) == ["WAITING"]
    assert (await house.stale(release(grant, await_signal=answer.id))).code == "LEASE_EXPIRED"
    await send(house, grant, "once")
    third = await house.grant()
    assert told(await ask(house, third)) == "once"
    assert await house.claim() == []


async def test_a_wait_times_out_by_the_clock_of_the_store_and_a_later_signal_is_for_the_next(
    house: House,
) -> None:
    grant = await waiting(house, timeout_s=3_600.0)
    await house.later(3_599)
    assert await house.claim() == []
    await house.later(1)
    again = await house.grant()
    assert (await ask(house, again)).state == "TIMED_OUT"
    assert (await send(house, grant, "late")).number == 2
    assert (await ask(house, again)).state == "TIMED_OUT", "the first wait stays without one"
    assert told(await ask(house, again, number=2)) == "late"


async def test_a_signal_after_the_deadline_that_no_sweep_has_seen_is_too_late(house: House) -> None:
    grant = await waiting(house, timeout_s=60.0)
    house.clock.jump(60)
    view = await send(house, grant, "late")
    assert (view.number, view.state) == (2, "KEPT")
    assert await states(house, grant.job_id) == ["TIMED_OUT", "KEPT"]
    again = await house.grant()
    assert (await ask(house, again)).state == "TIMED_OUT"


async def test_a_wait_without_a_timeout_lasts_for_the_configured_approval_timeout(house: House) -> None:
    grant = await waiting(house)
    (wait,) = (await house.view(grant.job_id)).waits
    assert (wait.name, wait.question) == ("paid", None)
    assert wait.until - wait.since == timedelta(seconds=house.settings.durations.approval_timeout_s)


async def test_a_cancelled_job_waits_no_longer_and_receives_nothing(house: House) -> None:
    grant = await waiting(house)
    await send(house, grant, "kept", name="other")
    await house.jobs.cancel(grant.job_id)
    assert await house.states(grant.job_id) == ("CANCELED", ["STALE", "CANCELED"])
    await house.recover(2)
    assert await states(house, grant.job_id) == ["CANCELED", "CANCELED"]
    with pytest.raises(TerminalState, match="is CANCELED, so it receives nothing"):
        await send(house, grant)
    assert (await house.view(grant.job_id)).waits == ()
    await house.later(10_000_000)
    assert await faults(house) == []


async def test_a_job_that_completes_drops_the_signals_that_it_did_not_want(house: House) -> None:
    grant = await house.started()
    await send(house, grant)
    await house.heard(done(grant))
    await house.recover(2)
    assert await states(house, grant.job_id) == ["CANCELED"]


async def test_the_time_of_waiting_does_not_count_towards_the_timeout_of_the_job(house: House) -> None:
    grant = await house.started(job_timeout_s=100)
    await parked(house, grant, await ask(house, grant, timeout_s=50_000.0))
    await house.later(40_000)
    await send(house, grant)
    again = await house.grant()
    await house.later(90)
    await house.heard(beat(again))
    await house.later(11)
    assert (await house.view(grant.job_id)).stop_reason == "timeout"


async def test_a_job_that_waits_gives_its_slot_of_a_limit_to_another(house: House) -> None:
    await house.port.services.limits.set("vendor", LimitSpec(max=1))
    await house.submit(limits=("vendor",))
    await house.submit(limits=("vendor",))
    await house.recover(2)
    first = await house.grant()
    await parked(house, first, await ask(house, first))
    await house.recover(2)
    other = await house.grant()
    assert other.job_id != first.job_id
    await send(house, first)
    await house.recover(2)
    assert await house.claim() == [], "the slot is taken"
    await house.heard(done(other))
    await house.recover(2)
    assert (await house.grant()).job_id == first.job_id


async def test_a_child_that_waits_is_not_woken_by_a_free_place_in_its_tree() -> None:
    house = await House(Settings(tree_quotas=(5, 1, 1, 1, 1, 1))).open()
    root = await house.started(queue="roots")
    specs = [JobSpec(task="child", parent_job_id=root.job_id) for _ in range(2)]
    await house.jobs.submit_many(specs)
    await house.recover()
    child = await house.grant()
    await parked(house, child, await ask(house, child))
    await house.recover(2)
    assert await house.claim() == [], "it keeps its place, as one that is delayed does"
    assert (await house.jobs.tree(root.job_id)).nodes[1].waits_for == "signal"
    await send(house, child)
    assert (await house.grant()).job_id == child.job_id
    await house.close()


async def test_every_shard_gets_the_same_signal(house: House) -> None:
    await house.submit(worker_count=2)
    one, other = await house.grant(), await house.grant()
    for grant in (one, other):
        await parked(house, grant, await ask(house, grant))
    await send(house, one, "go")
    for grant in (await house.grant(), await house.grant()):
        assert told(await ask(house, grant)) == "go"
        await house.heard(done(grant))
    assert (await house.view(one.job_id)).state == "COMPLETED"


async def test_of_many_signals_at_once_none_is_lost_and_each_has_its_number(house: House) -> None:
    grant = await waiting(house)
    neighbour = await house.neighbour()
    sent = await asyncio.gather(*(send(each, grant, n) for n in range(5) for each in (house, neighbour)))
    assert sorted(view.number for view in sent) == list(range(1, 11))
    assert [view.state for view in sent].count("RECEIVED") == 1
    again = await house.grant()
    got = [told(await ask(house, again, number=number)) for number in range(1, 11)]
    assert sorted(got, key=str) == sorted([*range(5)] * 2, key=str)
    assert await faults(house) == []
    await neighbour.close()


async def test_a_signal_to_a_full_mailbox_is_refused_with_the_limit(house: House) -> None:
    grant = await house.started()
    for number in range(MAX_KEPT):
        await send(house, grant, number, name="a" if number % 2 else "b")
    with pytest.raises(MailboxFull, match=f"keeps {MAX_KEPT} signals"):
        await send(house, grant)
    await ask(house, grant, "a")
    assert (await send(house, grant)).state == "KEPT"
    with pytest.raises(TooLarge):
        await send(house, grant, "x" * MAX_SIGNAL_BYTES)


async def test_an_invalid_signal_or_wait_is_refused_and_creates_no_wait(house: House) -> None:
    grant = await house.started()
    for name in ("", "a b", ".a", "x" * 33, "ä"):
        with pytest.raises(InvalidSignal, match="cannot be called"):
            await send(house, grant, name=name)
        with pytest.raises(InvalidSignal, match="cannot be called"):
            await ask(house, grant, name)
    with pytest.raises(InvalidSignal, match="after wait 0"):
        await ask(house, grant, number=2)
    with pytest.raises(InvalidSignal, match="at most"):
        await ask(house, grant, timeout_s=1e9)
    with pytest.raises(InvalidSignal, match="The data of the signal"):
        await house.port.services.waits.signal(grant.job_id, "paid", msgspec.Raw(b"{"))
    with pytest.raises(UnknownJob):
        await house.port.services.waits.signal("j_000000000000", "paid")
    with pytest.raises(UnknownLease):
        await house.port.await_signal(WaitRequest(token="no token", runner_id=RUNNER, name="paid"))
    assert await states(house, grant.job_id) == []


async def test_explain_names_the_signal_that_a_job_waits_for_and_the_command_to_send_it(house: House) -> None:
    grant = await waiting(house, timeout_s=60.0)
    explained = await house.jobs.explain(grant.job_id)
    assert explained.sentence.startswith("It waits for the signal paid. It holds no lease meanwhile")
    assert explained.todo == f"interlock job signal {grant.job_id} paid"


async def test_a_job_that_never_waits_has_nothing_of_it_in_its_record(house: House) -> None:
    grant = await house.started()
    await house.heard(release(grant))
    body = (await house.record(grant.job_id)).body
    assert b"mail" not in body
    assert b"awaits" not in body


async def test_a_repeated_request_for_a_wait_returns_the_same_wait(house: House) -> None:
    grant = await house.started()
    first, second = await ask(house, grant), await ask(house, grant)
    assert first == second
    both = await ask(house, grant, number=2)
    assert both.id == first.id, "a second wait for the same name waits for the first"
