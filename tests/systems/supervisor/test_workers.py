"""Workers that can be held: what the supervisor says happens, and nothing else does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.systems.orchestrator.house import CANCEL_DEADLINE_S, House, beat, done, failed
from tests.systems.orchestrator.test_every_store_alike import OpenHouse
from tests.waiting import PATIENCE_S

from interlock.engine.audit import audit
from interlock.errors import InterlockError, InvalidWorker, RequestIdReused, TransitionRefused, UnknownWorker
from interlock.store.records import Query
from interlock.systems.catalogue import JOURNALLED
from interlock.systems.settings import DEFAULT_SETTINGS
from interlock.systems.supervisor.workers import Workers
from interlock.wire.runner import ClaimRequest, Grant, StaleCode
from interlock.wire.workers import WorkerBeat, WorkerSpec, WorkerView

SILENCE_S = DEFAULT_SETTINGS.durations.worker_silence_s
SPEC = WorkerSpec(name="runner", incarnation="1", capacity=4, labels=("gpu",), queues=("default", "mail"))
"""Whose leases say `runner#1`, as those of the house do."""


def workers(house: House) -> Workers:
    return house.port.services.workers


async def running(house: House, **spec: Any) -> WorkerView:
    made = await workers(house).register(WorkerSpec(**{**_fields(SPEC), **spec}))
    await workers(house).beat(made.id, WorkerBeat(begun=True, active=1))
    return await workers(house).get(made.id)


def _fields(spec: WorkerSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in spec.__struct_fields__}


async def moves(house: House, worker_id: str) -> list[tuple[str, str, str]]:
    entries = await workers(house).history(worker_id)
    return [(s.event, s.source, s.target) for e in entries for s in e.note.steps if s.moves]


async def test_a_worker_registers_and_its_first_task_starts_it(house: House) -> None:
    made = await workers(house).register(SPEC)
    assert (made.state, made.started_at, made.capacity) == ("IDLE", None, 4)
    orders = await workers(house).beat(made.id, WorkerBeat())
    assert (orders.state, orders.take, orders.stop) == ("IDLE", True, "")
    await workers(house).beat(made.id, WorkerBeat(active=1, begun=True))
    view = await workers(house).get(made.id)
    assert (view.state, view.active) == ("RUNNING", 1)
    assert view.started_at is not None
    assert await moves(house, made.id) == [("start_task", "IDLE", "RUNNING")]


async def test_signs_of_life_are_no_news_but_keep_it_alive(house: House) -> None:
    made = await running(house)
    entries = len(await workers(house).history(made.id))
    for number in range(10):
        house.clock.jump(SILENCE_S - 1)
        await workers(house).sweep()
        await workers(house).beat(made.id, WorkerBeat(active=number % 3, processed=number))
    view = await workers(house).get(made.id)
    assert (view.state, view.active, view.processed) == ("RUNNING", 0, 9)
    assert len(await workers(house).history(made.id)) == entries


async def test_a_worker_that_falls_silent_is_terminated_and_its_work_counts_as_lost(house: House) -> None:
    made = await running(house)
    grant = await house.started()
    while (await workers(house).get(made.id)).state == "RUNNING":
        await house.heard(beat(grant))
        await house.later(SILENCE_S / 2)
    view = await workers(house).get(made.id)
    assert (view.state, view.outcome, view.active) == ("TERMINATED", "TERMINATED", 0)
    assert view.reason == f"no heartbeat for {SILENCE_S:g} s"
    await house.recover()
    job = await house.view(grant.job_id)
    assert ([one.state for one in job.attempts], job.losses) == (["STALE", "QUEUED"], 1)
    assert (await house.stale(done(grant))).code is StaleCode.LEASE_EXPIRED


async def test_a_worker_reported_dead_is_terminated_at_once_and_its_job_counts_as_lost(
    house: House,
) -> None:
    made = await running(house)
    grant = await house.started()
    other = await house.submit()
    await house.claim("another#1", limit=1)
    view = await workers(house).died("runner", "1", reason="killed by SIGKILL")
    assert (view.id, view.state, view.reason) == (made.id, "TERMINATED", "killed by SIGKILL")
    job = await house.view(grant.job_id)
    assert ([one.state for one in job.attempts], job.losses) == (["STALE", "QUEUED"], 1)
    assert (await house.states(other))[1] == ["STARTING"], "only its own work"
    assert (await house.stale(done(grant))).code is StaleCode.LEASE_EXPIRED
    assert (await workers(house).beat(made.id, WorkerBeat())).stop == "terminate"
    assert await moves(house, made.id) == [
        ("start_task", "IDLE", "RUNNING"),
        ("process_died", "RUNNING", "TERMINATED"),
    ]


async def test_the_attempt_of_a_worker_that_left_and_was_then_killed_is_requeued_at_once(
    house: House,
) -> None:
    made = await running(house)
    grant = await house.started()
    await workers(house).leave(made.id)
    view = await workers(house).died("runner", "1", reason="ended with exit code 1")
    assert view.state == "COMPLETED", "that stays as it is"
    job = await house.view(grant.job_id)
    assert ([one.state for one in job.attempts], job.losses) == (["STALE", "QUEUED"], 1)


async def test_a_death_report_from_another_actor_or_for_another_incarnation_is_refused(house: House) -> None:
    made = await workers(house).register(SPEC, actor="ann")
    for incarnation, actor in (("1", "ben"), ("2", "ann")):
        with pytest.raises(UnknownWorker):
            await workers(house).died("runner", incarnation, reason="a lie", actor=actor)
    assert (await workers(house).get(made.id)).state == "IDLE"


async def test_the_namesakes_of_a_worker_are_other_live_workers_of_its_name_and_actor(
    house: House,
) -> None:
    older = await workers(house).register(SPEC, actor="ann")
    gone = await workers(house).register(SPEC, actor="ann")
    await workers(house).leave(gone.id, actor="ann")
    await workers(house).register(SPEC, actor="ben")
    newer = await workers(house).register(SPEC, actor="ann")
    assert [each.id for each in await workers(house).namesakes(newer.id, actor="ann")] == [older.id]
    with pytest.raises(UnknownWorker):
        await workers(house).namesakes(newer.id, actor="ben")


async def test_a_terminated_worker_gives_its_work_back_at_the_cost_of_no_try(house: House) -> None:
    made = await running(house)
    grant = await house.started()
    other = await house.submit()
    await house.claim("another#1", limit=1)
    view = await workers(house).terminate(made.id, reason="on fire", actor="ann")
    assert (view.state, view.reason, view.heeded) == ("TERMINATED", "on fire", False)
    await house.recover()
    job = await house.view(grant.job_id)
    assert ([one.state for one in job.attempts], job.losses) == (["STALE", "QUEUED"], 0)
    assert (await house.states(other))[1] == ["STARTING"], "only its own work"
    assert (await house.stale(done(grant))).code is StaleCode.LEASE_REVOKED
    orders = await workers(house).beat(made.id, WorkerBeat(active=1))
    assert (orders.stop, orders.take, orders.give_back, orders.reason) == (
        "terminate", False, True, "on fire",
    )  # fmt: skip
    entry = (await workers(house).history(made.id))[-1]
    assert (entry.note.actor, entry.note.reason) == ("ann", "on fire")


async def test_an_attempt_that_a_terminated_worker_was_stopping_is_canceled_at_its_cancel_deadline(
    house: House,
) -> None:
    """Its job has ended by another shard: nothing of it returns to the queue."""
    made = await running(house)
    job_id = await house.submit(worker_count=2, retries=0)
    mine, others = await house.grant(), await house.grant("another#1")
    await house.heard(failed(others, runner_id="another#1"))
    assert await house.states(job_id) == ("FAILED", ["CANCEL_REQUESTED", "FAILED"])
    await workers(house).terminate(made.id)
    await house.later(CANCEL_DEADLINE_S + 1)
    assert await house.states(job_id) == ("FAILED", ["CANCELED", "FAILED"])
    assert await house.leases(job_id) == ["REVOKED", "COMPLETED"]
    assert (await house.stale(done(mine))).code is StaleCode.LEASE_REVOKED
    assert await house.claim() == []


async def test_a_worker_that_is_terminated_while_it_claims_is_given_nothing(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had is ready again at once, and its own last claim was the first to find it."""
    made = await running(house)
    grant = await house.started()
    claim = house.port.services.orchestrator.claim

    async def late(request: ClaimRequest, **named: Any) -> list[Grant]:
        await workers(house).terminate(made.id, reason="on fire")
        await house.recover()
        return await claim(request, **named)

    monkeypatch.setattr(house.port.services.orchestrator, "claim", late)
    claim_request = ClaimRequest(runner_id="anna#1", worker_id=made.id, limit=5)
    assert await house.port.claim(claim_request) == []
    job = await house.view(grant.job_id)
    assert (job.attempts[-1].state, job.losses) == ("QUEUED", 0)


@pytest.mark.parametrize("give_back", [False, True])
async def test_a_paused_worker_takes_nothing_new_until_it_is_resumed(house: House, give_back: bool) -> None:
    made = await running(house)
    view = await workers(house).pause(made.id, reason="deploy", give_back=give_back)
    assert (view.state, view.heeded, view.give_back) == ("PAUSED", False, give_back)
    orders = await workers(house).beat(made.id, WorkerBeat(active=1))
    assert (orders.take, orders.give_back, orders.stop, orders.number) == (False, give_back, "", 1)
    await workers(house).beat(made.id, WorkerBeat(active=0, heeded=orders.number))
    assert (await workers(house).get(made.id)).heeded
    resumed = await workers(house).resume(made.id)
    assert resumed.state == "RUNNING"
    orders = await workers(house).orders(made.id)
    assert (orders.take, orders.give_back, orders.number) == (True, False, 2)


async def test_a_paused_worker_that_stays_silent_is_terminated_as_well(house: House) -> None:
    made = await running(house)
    await workers(house).pause(made.id)
    await house.later(SILENCE_S + 1)
    assert (await workers(house).get(made.id)).state == "TERMINATED"


async def test_a_drained_worker_is_completed_when_it_leaves(house: House) -> None:
    made = await running(house)
    view = await workers(house).drain(made.id, reason="new code")
    assert (view.state, view.draining) == ("RUNNING", True)
    orders = await workers(house).orders(made.id)
    assert (orders.stop, orders.take, orders.give_back) == ("drain", False, False)
    left = await workers(house).leave(made.id)
    assert (left.state, left.outcome) == ("COMPLETED", "COMPLETED")
    assert left.completed_at is not None
    with pytest.raises(InterlockError) as refused:
        await workers(house).drain(made.id)
    assert (refused.value.status, refused.value.facts["state"]) == (409, "COMPLETED")


async def test_a_worker_that_leaves_without_ever_having_had_a_task_is_completed(house: House) -> None:
    made = await workers(house).register(SPEC)
    assert (await workers(house).leave(made.id)).state == "COMPLETED"
    assert [move[1:] for move in await moves(house, made.id)] == [
        ("IDLE", "RUNNING"),
        ("RUNNING", "COMPLETED"),
    ]
    assert (await workers(house).leave(made.id)).version == (await workers(house).get(made.id)).version


async def test_a_worker_that_leaves_while_it_is_paused_is_terminated(house: House) -> None:
    made = await running(house)
    await workers(house).pause(made.id)
    assert (await workers(house).leave(made.id, reason="SIGTERM")).state == "TERMINATED"


async def test_terminating_a_completed_worker_keeps_its_outcome_and_completion_time(house: House) -> None:
    made = await running(house)
    completed = await workers(house).leave(made.id)
    house.clock.jump(60)
    view = await workers(house).terminate(made.id)
    assert (view.state, view.outcome, view.completed_at) == (
        "TERMINATED", "COMPLETED", completed.completed_at,
    )  # fmt: skip
    with pytest.raises(TransitionRefused):
        await workers(house).terminate(made.id)


async def test_an_exhausted_worker_is_paused_and_its_job_is_requeued(house: House) -> None:
    made = await running(house)
    grant = await house.started()
    orders = await workers(house).beat(
        made.id, WorkerBeat(active=1, trouble="exhausted", reason="no memory left")
    )
    assert (orders.state, orders.take, orders.give_back, orders.reason) == (
        "PAUSED", False, True, "no memory left",
    )  # fmt: skip
    await house.recover()
    assert (await house.states(grant.job_id))[1] == ["STALE", "QUEUED"]


async def test_a_transient_error_is_tried_again_three_times(house: House) -> None:
    made = await running(house)
    for _ in range(3):
        await workers(house).beat(made.id, WorkerBeat(trouble="transient", reason="network"))
    assert (await workers(house).get(made.id)).state == "RUNNING"
    orders = await workers(house).beat(made.id, WorkerBeat(trouble="transient", reason="network"))
    assert (orders.state, orders.stop) == ("FAILED", "terminate")
    events = [s.event for e in await workers(house).history(made.id) for s in e.note.steps]
    assert events.count("error_transient") == 4, "each is in the journal, moved or not"


@pytest.mark.parametrize(
    ("state", "verb", "allowed"),
    [
        ("IDLE", "pause", True),
        ("IDLE", "resume", True),
        ("RUNNING", "resume", True),
        ("PAUSED", "pause", True),
        ("COMPLETED", "pause", True),
        ("FAILED", "resume", True),
        ("TERMINATED", "pause", False),
        ("TERMINATED", "start", False),
    ],
)
async def test_a_command_that_the_worker_table_forbids_is_refused_with_the_state_and_allowed_commands(
    house: House, state: str, verb: str, allowed: bool
) -> None:
    made = await workers(house).register(SPEC)
    if state != "IDLE":
        await workers(house).start(made.id)
    match state:
        case "PAUSED":
            await workers(house).pause(made.id)
        case "COMPLETED":
            await workers(house).leave(made.id)
        case "FAILED":
            await workers(house).beat(made.id, WorkerBeat(trouble="unrecoverable"))
        case "TERMINATED":
            await workers(house).terminate(made.id)
    before = await workers(house).get(made.id)
    assert before.state == state
    with pytest.raises(TransitionRefused) as refused:
        await getattr(workers(house), verb)(made.id)
    assert refused.value.status == 409
    assert refused.value.facts["state"] == state
    assert bool(refused.value.allowed) is allowed
    assert await workers(house).get(made.id) == before


async def test_every_action_on_an_unknown_worker_is_refused(house: House) -> None:
    for verb in ("start", "pause", "resume", "terminate", "drain", "get", "history", "leave"):
        with pytest.raises(UnknownWorker, match="There is no worker w_nobody"):
            await getattr(workers(house), verb)("w_nobody")
    with pytest.raises(UnknownWorker):
        await workers(house).beat("w_nobody", WorkerBeat())


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"capacity": 0}, "capacity is 0"),
        ({"capacity": 10_001}, "capacity is 10001"),
        ({"name": "a#b"}, "no '#'"),
        ({"workspace_id": ""}, "workspace_id has 1"),
        ({"queues": ("",)}, "name of a queue"),
        ({"labels": ("a\nb",)}, "a label has"),
        ({"labels": tuple(map(str, range(200)))}, "there are 200 labels"),
        ({"metadata": {"x": "y" * 5_000}}, "at most 4096"),
    ],
)
async def test_a_registration_that_breaks_a_rule_is_refused_and_stores_nothing(
    house: House, wrong: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidWorker, match=words) as refused:
        await workers(house).register(WorkerSpec(**{**_fields(SPEC), **wrong}))
    assert refused.value.status == 422
    assert (await workers(house).find(Query(kind="worker")))[0] == []


async def test_an_unknown_trouble_is_refused(house: House) -> None:
    made = await running(house)
    with pytest.raises(InvalidWorker, match="no trouble 'tired'"):
        await workers(house).beat(made.id, WorkerBeat(trouble="tired"))


async def test_orders_are_waited_for_and_arrive_when_they_are_given(house: House) -> None:
    made = await running(house)
    waiting = asyncio.create_task(workers(house).orders(made.id, after=0, wait_s=3_600))
    await asyncio.sleep(0)
    assert (await workers(house).orders(made.id, after=0)).number == 0
    await workers(house).pause(made.id)
    async with asyncio.timeout(PATIENCE_S):
        assert (await waiting).state == "PAUSED"


async def test_two_lives_under_one_name_are_distinguished(house: House) -> None:
    old = await running(house)
    new = await running(house, incarnation="2")
    await workers(house).terminate(old.id)
    assert (await workers(house).get(new.id)).state == "RUNNING"
    both, _ = await workers(house).find(Query(kind="worker", parent="runner"))
    assert [(view.incarnation, view.state) for view in both] == [("2", "RUNNING"), ("1", "TERMINATED")]


# On every store


async def test_of_twenty_that_pause_at_once_one_wins(open_house: OpenHouse) -> None:
    house, neighbour = await open_house(DEFAULT_SETTINGS), await open_house(DEFAULT_SETTINGS)
    made = await running(house)
    answers = await asyncio.gather(
        *[workers(each).pause(made.id) for each in (house, neighbour) * 10], return_exceptions=True
    )
    refused = [answer for answer in answers if isinstance(answer, TransitionRefused)]
    assert len(refused) == 19
    assert {str(each.facts["state"]) for each in refused} == {"PAUSED"}
    assert len([m for m in await moves(house, made.id) if m[0] == "pause"]) == 1


async def test_twenty_that_pause_with_one_request_id_all_succeed_and_once(open_house: OpenHouse) -> None:
    house, neighbour = await open_house(DEFAULT_SETTINGS), await open_house(DEFAULT_SETTINGS)
    made = await running(house)
    views = await asyncio.gather(
        *[workers(each).pause(made.id, request_id="p-1") for each in (house, neighbour) * 10]
    )
    assert {view.state for view in views} == {"PAUSED"}
    assert len([m for m in await moves(house, made.id) if m[0] == "pause"]) == 1
    await workers(house).resume(made.id)
    assert await workers(house).pause(made.id, request_id="p-1") == views[0], "the first answer"
    assert (await workers(house).get(made.id)).state == "RUNNING", "it was done before"
    with pytest.raises(RequestIdReused):
        await workers(house).terminate(made.id, request_id="p-1")


async def test_a_life_is_the_same_on_every_store_and_its_journal_replays(open_house: OpenHouse) -> None:
    house = await open_house(DEFAULT_SETTINGS)
    first, second = await running(house), await running(house, incarnation="2", labels=("cpu",))
    again = await workers(house).register(SPEC, request_id="r-1")
    assert (await workers(house).register(SPEC, request_id="r-1")).id == again.id
    await workers(house).pause(first.id, reason="look")
    await workers(house).resume(first.id)
    await workers(house).drain(first.id)
    await workers(house).leave(first.id)
    grant = await house.started(labels=("gpu",))
    await workers(house).terminate(second.id)
    while await house.recover():
        pass
    assert (await house.states(grant.job_id))[1] == ["STARTING"], "it belongs to another incarnation"
    assert await moves(house, first.id) == [
        ("start_task", "IDLE", "RUNNING"),
        ("pause", "RUNNING", "PAUSED"),
        ("resume", "PAUSED", "RUNNING"),
        ("complete_tasks", "RUNNING", "COMPLETED"),
    ]
    (labelled, _) = await workers(house).find(Query(kind="worker", labels=("cpu",)))
    assert [view.id for view in labelled] == [second.id]
    assert list((await audit(house.store, JOURNALLED, ("worker", "job", "message"))).faults) == []


async def test_a_paused_terminated_or_unknown_worker_is_granted_no_jobs(house: House) -> None:
    made = await running(house)
    job_id = await house.submit()
    await workers(house).pause(made.id)
    house.clock.jump(1)
    assert await house.claim(worker_id=made.id) == []
    await workers(house).resume(made.id)
    house.clock.jump(1)
    assert [grant.job_id for grant in await house.claim(worker_id=made.id)] == [job_id]
    await workers(house).terminate(made.id)
    house.clock.jump(1)
    assert await house.claim(worker_id=made.id) == []
    assert await house.claim(worker_id="w_nobody") == []


async def test_a_job_granted_to_a_worker_after_its_termination_is_requeued(house: House) -> None:
    made = await running(house)
    await workers(house).terminate(made.id)
    grant = await house.started()
    await house.recover()
    assert (await house.states(grant.job_id))[1] == ["STALE", "QUEUED"]


async def test_a_worker_that_registers_again_after_its_termination_keeps_its_new_job(house: House) -> None:
    made = await running(house)
    house.clock.jump(SILENCE_S + 1)
    await workers(house).sweep()
    orders = await workers(house).beat(made.id, WorkerBeat())
    assert (orders.anew, orders.stop) == (True, "terminate")
    await running(house)
    house.clock.jump(1)
    grant = await house.started()
    await house.recover()
    assert (await house.states(grant.job_id))[1] == ["STARTING"]
