"""The record of each agent's workload: what was heard of it, and nothing else."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.systems.orchestrator.house import House, done
from tests.systems.orchestrator.test_every_store_alike import OpenHouse

from interlock.engine.audit import audit
from interlock.errors import InvalidWorkload, UnknownWorkload
from interlock.lifecycles.durations import WORKLOAD_BEAT_S, Durations
from interlock.store.records import Query
from interlock.systems.catalogue import JOURNALLED
from interlock.systems.fleet.spec import TASK
from interlock.systems.fleet.workloads import CONTROLLER_LOST, Workloads, workload_id_of
from interlock.systems.settings import DEFAULT_SETTINGS, Settings
from interlock.wire.runner import Grant
from interlock.wire.workloads import (
    Happened,
    WorkloadFact,
)

DURATIONS = DEFAULT_SETTINGS.durations


def workloads(house: House) -> Workloads:
    return house.port.services.workloads


def fact(grant: Grant, happened: Happened, number: int = 0, **more: Any) -> WorkloadFact:
    fields: dict[str, Any] = {"agent": f"host{number}:7167", "kind": "sleep", **more}
    name = workload_id_of(grant.job_id, grant.fence, number)
    return WorkloadFact(workload_id=name, job_id=grant.job_id, happened=happened, **fields)


async def told(house: House, grant: Grant, *happened: Happened, **more: Any) -> list[str]:
    """The states that a record goes through when these things are heard one after the other."""
    states = []
    for each in happened:
        await workloads(house).apply([fact(grant, each, **more)])
        states.append((await workloads(house).get(fact(grant, each).workload_id)).state)
    return states


async def moves(house: House, workload_id: str) -> list[tuple[str, str]]:
    entries = await workloads(house).history(workload_id)
    return [(step.source, step.target) for entry in entries for step in entry.note.steps if step.moves]


async def test_a_workload_is_followed_from_ready_to_its_end_on_every_store(open_house: OpenHouse) -> None:
    house = await open_house(DEFAULT_SETTINGS)
    grant = await house.started(task=TASK)
    ways = {
        0: (Happened.READY, Happened.RUNNING, Happened.COMPLETED),
        1: (Happened.READY, Happened.RUNNING, Happened.ERROR),
        2: (Happened.READY, Happened.RUNNING, Happened.ABORTING, Happened.ABORTED),
        3: (Happened.READY, Happened.ABORTED),
        4: (Happened.REFUSED,),
    }
    for number, way in ways.items():
        for each in way:
            await workloads(house).apply([fact(grant, each, number, error="no", operations=number)])
    views, _ = await workloads(house).find(Query(kind="workload", parent=grant.job_id, newest_first=False))
    found = {view.agent: (view.state, view.final, view.operations, view.deadline_at) for view in views}
    finals = ["COMPLETED", "ERROR", "ABORTED", "ABORTED", "ERROR"]
    assert found == {f"host{n}:7167": ("IDLE", finals[n], n, None) for n in range(5)}
    replayed = await audit(house.store, JOURNALLED, ["workload"])
    assert (replayed.records, replayed.faults) == (5, [])


async def test_transitions_that_were_not_reported_are_journalled_when_a_later_fact_implies_them(
    house: House,
) -> None:
    grant = await house.started(task=TASK)
    await workloads(house).apply([fact(grant, Happened.COMPLETED)])
    name = fact(grant, Happened.READY).workload_id
    assert await moves(house, name) == [("IDLE", "READY"), ("READY", "RUNNING"), ("RUNNING", "IDLE")]


async def test_a_repeated_or_outdated_fact_changes_nothing(house: House) -> None:
    grant = await house.started(task=TASK)
    ready, running, completed = Happened.READY, Happened.RUNNING, Happened.COMPLETED
    assert await told(house, grant, ready, ready, running, ready, running) == ["READY"] * 2 + ["RUNNING"] * 3
    assert await told(house, grant, completed, running, Happened.ERROR) == ["IDLE"] * 3
    view = await workloads(house).get(fact(grant, ready).workload_id)
    assert (view.final, view.error) == ("COMPLETED", "")
    assert len(await moves(house, view.id)) == 3


async def test_that_the_controller_lives_is_no_news_but_keeps_the_workload(house: House) -> None:
    grant = await house.started(task=TASK)
    await told(house, grant, Happened.READY, Happened.RUNNING)
    name = fact(grant, Happened.READY).workload_id
    entries = len(await workloads(house).history(name))
    for _ in range(4):
        await house.later(DURATIONS.worker_silence_s * 0.7)
        await workloads(house).apply([fact(grant, Happened.ALIVE)])
        await workloads(house).sweep()
    assert (await workloads(house).get(name)).state == "RUNNING"
    assert len(await workloads(house).history(name)) == entries


async def test_the_deadline_of_a_workload_exceeds_two_controller_heartbeats_even_with_short_settings(
    open_house: OpenHouse,
) -> None:
    hasty = Durations(
        worker_silence_s=3.0,
        worker_beat_every_s=1.0,
        ack_window_s=2.0,
        lease_ttl_s=3.0,
        heartbeat_every_s=0.5,
        shutdown_soft_s=0.5,
        shutdown_deadline_s=2.0,
        cancel_deadline_s=1.5,
        abort_warning_s=0.5,
        abort_kill_s=1.0,
    )
    house = await open_house(Settings(durations=hasty))
    grant = await house.started(task=TASK)
    await workloads(house).apply([fact(grant, Happened.RUNNING)])
    view = await workloads(house).get(fact(grant, Happened.RUNNING).workload_id)
    assert view.deadline_at is not None
    assert view.deadline_at - view.updated_at > timedelta(seconds=2 * WORKLOAD_BEAT_S)


@pytest.mark.parametrize("state", [Happened.READY, Happened.RUNNING, Happened.ABORTING])
async def test_the_workloads_of_a_dead_controller_are_written_off_in_every_state(
    house: House, state: Happened
) -> None:
    grant = await house.started(task=TASK)
    way = {Happened.READY: [], Happened.RUNNING: [], Happened.ABORTING: [Happened.RUNNING]}[state]
    await told(house, grant, Happened.READY, *way, state)
    for _ in range(2):
        await house.later(DURATIONS.worker_silence_s + 1)
        await workloads(house).sweep()
    view = await workloads(house).get(fact(grant, state).workload_id)
    assert (view.state, view.final, view.lost, view.error) == ("IDLE", "ABORTED", True, CONTROLLER_LOST)
    assert view.deadline_at is None
    assert (await audit(house.store, JOURNALLED, ["workload"])).faults == []


async def test_a_lost_agent_is_written_off_after_the_time_it_has_to_stop(house: House) -> None:
    grant = await house.started(task=TASK)
    assert await told(house, grant, Happened.READY, Happened.RUNNING, Happened.LOST, error="gone") == [
        "READY", "RUNNING", "ABORTING",
    ]  # fmt: skip
    await house.later(DURATIONS.abort_kill_s + 1)
    view = await workloads(house).get(fact(grant, Happened.LOST).workload_id)
    assert (view.state, view.lost, view.error) == ("IDLE", True, "gone")


async def test_only_a_job_that_drives_a_fleet_and_lives_makes_workloads(house: House) -> None:
    other = await house.started(task="build")
    driver = await house.started(task=TASK)
    with pytest.raises(InvalidWorkload, match="does not drive a fleet"):
        await workloads(house).apply([fact(other, Happened.READY)])
    await workloads(house).apply([fact(driver, Happened.RUNNING)])
    await house.heard(done(driver))
    with pytest.raises(InvalidWorkload):
        await workloads(house).apply([fact(driver, Happened.READY, 7)])
    assert await told(house, driver, Happened.COMPLETED) == ["IDLE"]  # the end of what is known is heard


async def test_a_job_cannot_report_on_the_workload_of_another_job(house: House) -> None:
    one, two = await house.started(task=TASK), await house.started(task=TASK)
    await workloads(house).apply([fact(one, Happened.RUNNING)])
    mine = fact(one, Happened.COMPLETED).workload_id
    stolen = WorkloadFact(workload_id=mine, job_id=two.job_id, happened=Happened.COMPLETED)
    with pytest.raises(UnknownWorkload):
        await workloads(house).apply([stolen])
    assert (await workloads(house).get(mine)).state == "RUNNING"


async def test_facts_about_many_agents_become_true_together_or_not_at_all(house: House) -> None:
    grant = await house.started(task=TASK)
    many = [fact(grant, Happened.READY, number) for number in range(50)]
    with pytest.raises(InvalidWorkload, match="twice"):
        await workloads(house).apply([*many, many[0]])
    assert (await workloads(house).find(Query(kind="workload")))[0] == []
    await workloads(house).apply(many)
    views, _ = await workloads(house).find(Query(kind="workload", parent=grant.job_id, limit=100))
    assert {view.state for view in views} == {"READY"}
    assert len(views) == 50
