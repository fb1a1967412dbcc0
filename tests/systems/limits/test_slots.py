"""A key has so many slots: jobs hold them while they are at work, and wait for them in line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.systems.orchestrator.house import RUNNER, TTL_S, House, done, failed, release

from interlock.errors import InvalidJob, InvalidLimit, UnknownLimit
from interlock.store.records import Query
from interlock.systems.orchestrator.limits import Limits
from interlock.wire.jobs import JobSpec, RetryRule
from interlock.wire.limits import KeyView, LimitSpec
from interlock.wire.runner import Grant
from interlock.wire.schedules import ScheduleSpec

TWO = LimitSpec(max=2)


def limits(house: House) -> Limits:
    return house.port.services.limits


async def given(house: House, limit: int = 100, queues: Sequence[str] = ("default",)) -> list[Grant]:
    """Return what a runner is given once everything that was said has been heard."""
    await settle(house)
    return await house.claim(limit=limit, queues=tuple(queues))


async def settle(house: House) -> None:
    while await limits(house).keep():
        pass


async def key(house: House, name: str) -> KeyView:
    view = await limits(house).get(name)
    return next(each for each in view.keys if each.key == name)


async def submit(house: House, number: int, *keys: str, **more: object) -> list[str]:
    spec = JobSpec(task="call", limits=keys, **more)  # type: ignore[arg-type]
    return await house.jobs.submit_many([spec] * number)


async def test_no_more_jobs_of_a_key_are_given_out_than_it_has_slots(house: House) -> None:
    await limits(house).set("vendor-x", TWO)
    ids = await submit(house, 5, "vendor-x")
    free = await house.submit()
    first = await given(house)
    assert sorted(grant.job_id for grant in first) == sorted([*ids[:2], free])
    view = await key(house, "vendor-x")
    assert (view.used, view.waiting, view.state) == (2, 3, "full")
    assert [holder.job_id for holder in view.holders] == ids[:2]
    by_id = {grant.job_id: grant for grant in first}
    await house.heard(done(by_id[ids[0]]))
    assert [grant.job_id for grant in await given(house)] == [ids[2]]
    assert not await house.faults()


async def test_a_job_alone_is_admitted_without_waiting_for_a_sweep(house: House) -> None:
    await limits(house).set("vendor-x", TWO)
    job_id = (await submit(house, 1, "vendor-x"))[0]
    await house.port.services._limit_debouncer.idle()
    assert [grant.job_id for grant in await house.claim()] == [job_id]


async def test_a_heavy_job_takes_several_slots_and_is_not_overtaken_for_ever(house: House) -> None:
    await limits(house).set("vendor-x", LimitSpec(max=3))
    (light,) = await submit(house, 1, "vendor-x")
    (heavy,) = await submit(house, 1, "vendor-x", weight=3)
    (last,) = await submit(house, 1, "vendor-x")
    (grant,) = await given(house)
    assert grant.job_id == light
    await house.heard(done(grant))
    (grant,) = await given(house)
    assert grant.job_id == heavy
    assert await given(house) == []
    await house.heard(done(grant))
    assert [each.job_id for each in await given(house)] == [last]


async def test_a_lost_worker_keeps_the_slot_for_the_next_attempt_and_no_other_job(house: House) -> None:
    await limits(house).set("vendor-x", LimitSpec(max=1))
    first, second = await submit(house, 2, "vendor-x")
    assert [grant.job_id for grant in await given(house)] == [first]
    await house.later(TTL_S + 1)
    (again,) = await given(house)
    assert (again.job_id, again.attempt) == (first, 2)
    await house.heard(done(again))
    assert [grant.job_id for grant in await given(house)] == [second]


async def test_a_job_that_has_lost_all_its_workers_frees_its_slot_with_its_last_lease(house: House) -> None:
    await limits(house).set("vendor-x", LimitSpec(max=1))
    await submit(house, 1, "vendor-x", losses=0)
    (second,) = await submit(house, 1, "vendor-x")
    await given(house)
    await house.later(TTL_S + 1)
    assert [grant.job_id for grant in await given(house)] == [second]


async def test_a_retry_that_waits_for_its_time_holds_no_slot(house: House) -> None:
    await limits(house).set("vendor-x", LimitSpec(max=1))
    rule = {"user": RetryRule(retries=1, first_pause_s=100.0, jitter=0.0)}
    (first,) = await submit(house, 1, "vendor-x", retry=rule)
    (second,) = await submit(house, 1, "vendor-x")
    (grant,) = await given(house)
    await house.heard(failed(grant))
    (other,) = await given(house)
    assert other.job_id == second
    house.clock.jump(101)
    assert await given(house) == []
    await house.heard(done(other))
    (again,) = await given(house)
    assert (again.job_id, again.attempt) == (first, 2)


async def test_a_delayed_job_holds_no_slot_before_its_time(house: House) -> None:
    await limits(house).set("vendor-x", LimitSpec(max=1))
    (late,) = await submit(house, 1, "vendor-x", delay_s=100.0)
    (now,) = await submit(house, 1, "vendor-x")
    (grant,) = await given(house)
    assert grant.job_id == now
    await house.heard(done(grant))
    house.clock.jump(101)
    assert [each.job_id for each in await given(house)] == [late]


async def test_cancelled_jobs_leave_the_line_and_free_their_slots(house: House) -> None:
    await limits(house).set("vendor-x", LimitSpec(max=1))
    first, second, third = await submit(house, 3, "vendor-x")
    await settle(house)
    await house.jobs.cancel(second)
    await house.jobs.cancel(first)
    assert [grant.job_id for grant in await given(house)] == [third]


async def test_work_that_is_given_back_keeps_its_slot(house: House) -> None:
    await limits(house).set("vendor-x", LimitSpec(max=1))
    first, _ = await submit(house, 2, "vendor-x")
    (grant,) = await given(house)
    await house.heard(release(grant))
    assert [each.job_id for each in await given(house)] == [first]


async def test_a_job_under_two_limits_needs_room_in_both(house: House) -> None:
    await limits(house).set("vendor-x", LimitSpec(max=3))
    await limits(house).set("tenant:*", LimitSpec(max=1))
    a1, a2 = await submit(house, 2, "tenant:a", "vendor-x")
    b1, b2 = await submit(house, 2, "tenant:b", "vendor-x")
    (c1,) = await submit(house, 1, "tenant:c", "vendor-x")
    (d1,) = await submit(house, 1, "tenant:d", "vendor-x")
    held = {grant.job_id: grant for grant in await given(house)}
    assert set(held) == {a1, b1, c1}
    await house.heard(done(held[a1]))
    (second,) = await given(house)
    await house.heard(done(held[b1]))
    (third,) = await given(house)
    await house.heard(done(held[c1]))
    (fourth,) = await given(house)
    assert {second.job_id, third.job_id, fourth.job_id} == {d1, a2, b2}


async def test_keys_that_wait_for_the_same_limit_are_served_in_turn(house: House) -> None:
    await limits(house).set("queue:default", LimitSpec(max=1))
    await limits(house).set("tenant:*", LimitSpec(max=1))
    for tenant, number in (("a", 20), ("b", 2), ("c", 2)):
        await submit(house, number, f"tenant:{tenant}")
    order = []
    for _ in range(6):
        (grant,) = await given(house)
        order.append((await house.view(grant.job_id)).limits[0])
        await house.heard(done(grant))
    assert sorted(order) == ["tenant:a", "tenant:a", "tenant:b", "tenant:b", "tenant:c", "tenant:c"]


async def test_a_tenant_with_many_jobs_does_not_starve_one_with_three(house: House) -> None:
    await limits(house).set("tenant:*", LimitSpec(max=5))
    await submit(house, 300, "tenant:big")
    small = await submit(house, 3, "tenant:small")
    started: list[str] = []
    for _ in range(4):
        house.clock.jump(1)
        for grant in await given(house, limit=4):
            started.append(grant.job_id)
            await house.heard(done(grant))
    assert set(small) <= set(started[:8])


async def test_a_limit_of_a_queue_or_a_task_counts_all_its_jobs(house: House) -> None:
    await limits(house).set("queue:imports", TWO)
    await limits(house).set("task:mail", LimitSpec(max=1))
    await house.jobs.submit_many([JobSpec(task="build", queue="imports")] * 4)
    await house.jobs.submit_many([JobSpec(task="mail")] * 4)
    assert len(await given(house, queues=["imports"])) == 2
    assert len(await given(house)) == 1


async def test_jobs_that_were_submitted_before_the_limit_of_their_queue_line_up_when_they_are_found(
    house: House,
) -> None:
    ids = await house.jobs.submit_many([JobSpec(task="build", queue="imports")] * 4)
    await limits(house).set("queue:imports", TWO)
    assert await house.claim(queues=("imports",)) == []
    first = await given(house, queues=["imports"])
    assert [grant.job_id for grant in first] == ids[:2]
    await house.heard(done(first[0]))
    assert [grant.job_id for grant in await given(house, queues=["imports"])] == [ids[2]]


async def test_raising_a_limit_admits_more_and_lowering_it_stops_none(house: House) -> None:
    await limits(house).set("vendor-x", LimitSpec(max=1))
    await submit(house, 6, "vendor-x")
    first = await given(house)
    await limits(house).set("vendor-x", LimitSpec(max=3))
    more = await house.claim(limit=100)
    assert (len(first), len(more)) == (1, 2)
    await limits(house).set("vendor-x", LimitSpec(max=1))
    for grant in more:
        await house.heard(done(grant))
        assert await given(house) == []
    await house.heard(done(first[0]))
    assert len(await given(house)) == 1


async def test_deleting_a_limit_admits_all_that_wait(house: House) -> None:
    await limits(house).set("vendor-x", LimitSpec(max=1))
    await submit(house, 250, "vendor-x")
    assert len(await given(house)) == 1
    await limits(house).delete("vendor-x", actor="ann")
    assert len(await house.claim(limit=300)) == 249
    with pytest.raises(UnknownLimit):
        await submit(house, 1, "vendor-x")
    with pytest.raises(UnknownLimit):
        await limits(house).delete("vendor-x")


async def test_a_slot_held_by_a_job_that_no_worker_claims_is_given_to_a_waiting_job(house: House) -> None:
    await limits(house).set("vendor-x", LimitSpec(max=1))
    (stuck,) = await submit(house, 1, "vendor-x", labels=("gpu",))
    (free,) = await submit(house, 1, "vendor-x")
    assert await given(house) == []
    house.clock.jump(61)
    (grant,) = await given(house)
    assert grant.job_id == free
    await house.heard(done(grant))
    await settle(house)
    assert [each.job_id for each in await house.claim(labels=("gpu",))] == [stuck]


async def test_served_tickets_are_removed(house: House) -> None:
    await limits(house).set("vendor-x", TWO)
    await submit(house, 2, "vendor-x")
    for grant in await given(house):
        await house.heard(done(grant))
    await settle(house)
    assert not (await house.store.find(Query(kind="limit_ticket"))).records
    (gate,) = (await house.store.find(Query(kind="limit_gate"))).records
    assert gate.state == "free"


async def test_a_limit_that_is_not_declared_or_too_small_is_refused_at_once(house: House) -> None:
    await limits(house).set("vendor-x", TWO)
    with pytest.raises(UnknownLimit) as unknown:
        await submit(house, 1, "vendor-y")
    assert unknown.value.todo == "Declare it: interlock limit set vendor-y --max 5"
    with pytest.raises(InvalidLimit):
        await submit(house, 1, "vendor-x", weight=3)
    with pytest.raises(InvalidJob):
        await submit(house, 1, "vendor-x", weight=0)
    wrong = [LimitSpec(), LimitSpec(max=0), LimitSpec(max=1, burst=2), LimitSpec(rate=1, period_s=0)]
    for name, spec in [("", TWO), ("a*b", TWO), *(("a", each) for each in wrong)]:
        with pytest.raises(InvalidLimit):
            await limits(house).set(name, spec)


async def test_a_job_that_is_done_again_counts_against_the_same_limits(house: House) -> None:
    await limits(house).set("vendor-x", LimitSpec(max=1))
    (first,) = await submit(house, 1, "vendor-x", weight=1)
    (grant,) = await given(house)
    await house.heard(failed(grant))
    again = await house.jobs.retry(first)
    assert (await house.view(again)).limits == ("vendor-x",)
    assert [each.job_id for each in await given(house)] == [again]


async def test_a_backlog_of_a_queue_lines_up_when_its_limit_is_declared(house: House) -> None:
    ids = await house.jobs.submit_many([JobSpec(task="build", queue="imports")] * 1_200)
    await limits(house).set("queue:imports", TWO)
    assert [grant.job_id for grant in await given(house, queues=["imports"])] == ids[:2]
    (view,) = (await limits(house).get("queue:imports")).keys
    assert (view.used, view.waiting) == (2, 20)
    assert view.capped


async def test_explain_names_the_limit_that_a_job_waits_for_and_the_jobs_that_hold_its_slots(
    house: House,
) -> None:
    await limits(house).set("vendor-x", TWO)
    first, second, third = await submit(house, 3, "vendor-x")
    await settle(house)
    explanation = await house.jobs.explain(third)
    assert explanation.sentence == f"It waits for the limit vendor-x: 2 of 2 in use by {first}, {second}."
    assert explanation.todo == "interlock limit show vendor-x"
    assert "2 of 2 in use." in (await house.jobs.explain(third, in_general=False)).sentence
    assert "worker" in (await house.jobs.explain(first)).sentence


async def test_a_limit_set_by_an_operator_is_not_changed_by_a_declaration_in_code(house: House) -> None:
    await limits(house).declare("vendor-x", TWO, source="code")
    assert (await limits(house).declare("vendor-x", LimitSpec(max=4), source="code")).spec.max == 4
    await limits(house).set("vendor-x", LimitSpec(max=1))
    assert (await limits(house).declare("vendor-x", TWO, source="code")).spec.max == 1
    assert [view.name for view in await limits(house).list()] == ["vendor-x"]


async def test_the_same_request_is_done_once(house: House) -> None:
    set_ = await limits(house).set("vendor-x", TWO, request_id="one")
    assert await limits(house).set("vendor-x", TWO, request_id="one") == set_
    gone = await limits(house).delete("vendor-x", request_id="two")
    assert await limits(house).delete("vendor-x", request_id="two") == gone


async def test_children_and_jobs_of_a_schedule_count_against_their_limits(house: House) -> None:
    await limits(house).set("vendor-x", LimitSpec(max=1))
    parent = await house.started(queue="parents")
    child = JobSpec(task="call", limits=("vendor-x",))
    made = await house.port.submit_children(parent.token, RUNNER, "calls", [child])
    spec = ScheduleSpec(job=child, every="1h")
    await house.port.services.schedules.create("hourly", spec)
    run = await house.port.services.schedules.run("hourly")
    (grant,) = await given(house)
    assert grant.job_id == made[0]
    await house.heard(done(grant))
    assert [each.job_id for each in await given(house)] == [run.job_id]


async def test_a_submission_repeated_under_its_request_id_creates_no_jobs_after_its_limits_change(
    house: House,
) -> None:
    await limits(house).set("vendor-x", TWO)
    spec = JobSpec(task="call", limits=("vendor-x",))
    ids = await house.jobs.submit_many([spec, spec], request_id="one")
    await limits(house).set("queue:default", TWO)
    assert await house.jobs.submit_many([spec, spec], request_id="one") == ids
    await limits(house).delete("vendor-x")
    assert await house.jobs.submit_many([spec, spec], request_id="one") == ids
    assert await house.number_of_jobs() == 2


async def test_the_view_of_a_key_shows_its_slot_holders_its_waiting_jobs_and_the_keys_behind_it(
    house: House,
) -> None:
    await limits(house).set("tenant:*", TWO)
    await limits(house).set("vendor-x", LimitSpec(max=1))
    held = await submit(house, 2, "tenant:a")
    await submit(house, 1, "vendor-x")
    await given(house)
    (later,) = await submit(house, 1, "tenant:a")
    (urgent,) = await submit(house, 1, "tenant:a", priority=10)
    await submit(house, 1, "tenant:b", "vendor-x")
    await settle(house)
    view = await limits(house).get("tenant:a")
    (shown,) = view.keys
    assert (view.name, shown.key, shown.state) == ("tenant:*", "tenant:a", "full")
    assert [(one.job_id, one.runner_id, one.task) for one in shown.holders] == [
        (job_id, RUNNER, "call") for job_id in held
    ]
    assert all(one.expires_at is not None for one in shown.holders)
    assert [one.job_id for one in shown.line] == [urgent, later]
    assert (await limits(house).get("tenant:nobody")).keys == ()
    (vendor,) = (await limits(house).get("vendor-x")).keys
    assert vendor.behind == ("tenant:b",)


async def test_many_keys_are_counted_and_come_in_pages(house: House) -> None:
    await limits(house).set("tenant:*", LimitSpec(max=1))
    for number in range(7):
        await submit(house, 1 + number % 2, f"tenant:{number}")
    await settle(house)
    (view,) = (await limits(house).page(keys=3)).limits
    assert (len(view.keys), view.more_keys, view.in_use, view.full, view.capped) == (3, True, 7, 3, False)
    seen, cursor = list[str](), ""
    while True:
        page = await limits(house).keys("tenant:*", limit=3, cursor=cursor)
        assert len(page.keys) <= 3
        assert (page.limit.name, page.limit.keys, page.limit.in_use) == ("tenant:*", (), 7)
        seen, cursor = [*seen, *(each.key for each in page.keys)], page.cursor
        if not cursor:
            break
    assert sorted(seen) == [f"tenant:{number}" for number in range(7)]
    full = await limits(house).keys("tenant:*", state="full")
    assert {each.key for each in full.keys} == {"tenant:1", "tenant:3", "tenant:5"}


async def test_limits_come_in_pages_by_name(house: House) -> None:
    for name in ("b", "a", "c"):
        await limits(house).set(name, TWO)
    first = await limits(house).page(limit=2)
    rest = await limits(house).page(limit=2, after=first.cursor)
    assert [[view.name for view in page.limits] for page in (first, rest)] == [["a", "b"], ["c"]]
    assert (first.cursor, rest.cursor) == ("b", "")


async def test_the_key_of_a_rate_limit_shows_how_many_starts_are_left(house: House) -> None:
    await limits(house).set("vendor-y", LimitSpec(rate=3, period_s=60.0))
    await submit(house, 2, "vendor-y")
    await settle(house)
    assert (await key(house, "vendor-y")).starts_left == 1


async def test_a_page_of_limits_reads_the_keys_of_all_without_a_pattern_at_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tenant:*", "vendor-w", "vendor-x", "vendor-y"):
        await limits(house).set(name, TWO)
    await submit(house, 3, "vendor-x")
    await submit(house, 1, "vendor-y")
    await submit(house, 1, "tenant:a")
    assert len(await given(house)) == 4
    alone = [await limits(house).get(name) for name in ("tenant:*", "vendor-x", "vendor-y")]
    calls: list[str] = []
    for name in ("load", "find"):
        monkeypatch.setattr(house.store, name, counted(getattr(house.store, name), name, calls))
    listed = {view.name: view for view in (await limits(house).page()).limits}
    # The limits, their keys at once, the keys of the pattern, and the line of the one that is full.
    assert calls == ["find", "load", "find", "find"]
    assert (listed["vendor-w"].keys, listed["vendor-w"].in_use) == ((), 0)
    for view in alone:
        shown = listed[view.name]
        assert (shown.in_use, shown.full) == (view.in_use, view.full)
        assert [(each.key, each.used, each.waiting) for each in shown.keys] == [
            (each.key, each.used, each.waiting) for each in view.keys
        ]


def counted(call: Callable[..., Any], name: str, calls: list[str]) -> Callable[..., Any]:
    def counting(*args: Any, **more: Any) -> Any:
        calls.append(name)
        return call(*args, **more)

    return counting
