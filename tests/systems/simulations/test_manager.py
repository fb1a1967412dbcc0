"""What people do with simulations, and what the manager answers; in memory, with a clock that jumps."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from tests.systems.orchestrator.house import House
from tests.systems.orchestrator.house import beat as renew
from tests.systems.simulations.worker import SPEC, faults, moves, running, simulations

from interlock.errors import (
    AlreadyThere,
    GuardRefused,
    InvalidSimulation,
    SimulationExists,
    TerminalState,
    TooLarge,
    TransitionNotAllowed,
    TransitionRefused,
    UnknownSimulation,
    VersionChanged,
)
from interlock.wire.simulations import Beat, Danger, Paused, SimulationFilter, SimulationSpec

BY_HAND = SimulationSpec(scenario_path="a.yaml", scenario_name="A")


async def test_a_simulation_and_the_job_that_executes_it_are_made_together(house: House) -> None:
    made = await simulations(house).create_run(SPEC)
    assert (made.status, made.version, made.current_step, made.total_steps) == ("pending", 1, 0, 10)
    assert (made.priority, made.danger_count, made.worker_id, made.error) == ("normal", 0, None, None)
    job = await house.view(made.job_id)
    assert (job.task, job.state) == ("flu", "PENDING")
    assert await faults(house) == []


async def test_get_state_returns_none_and_pause_raises_an_error_for_an_unknown_simulation(
    house: House,
) -> None:
    assert await simulations(house).get_state("s_nothing") is None
    with pytest.raises(UnknownSimulation, match="There is no simulation s_nothing"):
        await simulations(house).pause("s_nothing")


async def test_a_request_that_is_repeated_makes_one_simulation(house: House) -> None:
    first = await simulations(house).create_run(SPEC, request_id="r1")
    second = await simulations(house).create_run(SPEC, request_id="r1")
    assert first.run_id == second.run_id
    assert await house.number_of_jobs() == 1


async def test_an_id_of_ones_own_is_taken_once(house: House) -> None:
    made = await simulations(house).create_run(msgspec.structs.replace(SPEC, run_id="flu-1"))
    assert made.run_id == "flu-1"
    with pytest.raises(SimulationExists, match="There is a simulation flu-1 already"):
        await simulations(house).create_run(msgspec.structs.replace(SPEC, run_id="flu-1"))
    assert await house.number_of_jobs() == 1


async def test_everything_that_is_wrong_is_reported_at_once(house: House) -> None:
    wrong = SimulationSpec(
        task="x" * 201, run_id="a b", priority="urgent", total_steps=0, scenario_path="\ud800"
    )
    with pytest.raises(InvalidSimulation) as refused:
        await simulations(house).create_run(wrong)
    assert len(refused.value.facts["faults"]) == 5  # type: ignore[arg-type]
    assert await house.number_of_jobs() == 0


async def test_a_transition_by_hand_follows_the_table_and_the_version(house: House) -> None:
    manager = simulations(house)
    made = await manager.create_run(BY_HAND)
    assert await house.number_of_jobs() == 0
    with pytest.raises(TransitionNotAllowed):
        await manager.transition(made.run_id, "completed")
    running_now = await manager.transition(made.run_id, "running", worker_id="w1", expected_version=1)
    assert (running_now.version, running_now.worker_id, running_now.started_at is not None) == (2, "w1", True)
    with pytest.raises(VersionChanged) as late:
        await manager.transition(made.run_id, "failed", expected_version=1, error="x")
    assert late.value.facts["version"] == 2
    with pytest.raises(GuardRefused, match="another worker"):
        await manager.transition(made.run_id, "completed", worker_id="w2")
    with pytest.raises(AlreadyThere):
        await manager.transition(made.run_id, "running", worker_id="w1")
    failed = await manager.transition(made.run_id, "FAILED", worker_id="w1", error="no more people")
    assert (failed.status, failed.error, failed.completed_at is not None) == (
        "failed",
        "no more people",
        True,
    )
    with pytest.raises(TerminalState):
        await manager.transition(made.run_id, "running", worker_id="w1")
    assert await faults(house) == []


async def test_a_heartbeat_changes_no_version_and_is_accepted_only_from_the_worker_of_the_simulation(
    house: House,
) -> None:
    manager = simulations(house)
    made = await manager.create_run(BY_HAND)
    with pytest.raises(TransitionRefused):
        await manager.heartbeat(made.run_id, "w1", 1)
    with pytest.raises(UnknownSimulation):
        await manager.heartbeat("s_ghost", "w1", 1)
    assert await manager.get_state("s_ghost") is None
    await manager.transition(made.run_id, "running", worker_id="w1")
    house.clock.jump(5)
    view = await manager.heartbeat(made.run_id, "w1", 7)
    assert (view.version, view.current_step) == (2, 7)
    assert view.last_heartbeat == await house.store.now()
    with pytest.raises(GuardRefused, match="another worker executes it"):
        await manager.heartbeat(made.run_id, "w2", 8)
    with pytest.raises(GuardRefused, match="another worker executes it"):
        await manager.heartbeat(made.run_id, "w3", 9)
    refusals = [entry.note for entry in await manager.history(made.run_id) if entry.note.refusal]
    assert [note.actor for note in refusals] == ["w1", "w2"], "the first of each kind is journalled"
    assert "another worker executes it" in refusals[1].refusal
    late = await manager.heartbeat(made.run_id, "w1", 3)
    assert late.current_step == 7
    done = await manager.transition(made.run_id, "completed", worker_id="w1")
    assert (done.version, done.current_step) == (3, 7)
    with pytest.raises(TransitionRefused):
        await manager.heartbeat(made.run_id, "w1", 8)


async def test_silence_is_shown_after_30_seconds_and_interrupts_after_60(house: House) -> None:
    view, player = await running(house)
    manager = simulations(house)
    await player.beat(4)
    await house.later(29)
    assert not (await manager.get(view.run_id)).stale
    await house.later(1)
    stale = await manager.get(view.run_id)
    assert (stale.status, stale.stale) == ("running", True)
    assert await manager.check_stale_runs(30) == [view.run_id]
    assert await manager.check_stale_runs() == []
    await house.later(30)
    gone = await manager.get(view.run_id)
    assert (gone.status, gone.worker_id, gone.completed_at, gone.stale) == ("interrupted", None, None, False)
    assert gone.trouble == "no heartbeat of its worker for 60 s"
    assert await manager.check_stale_runs(0.001) == []
    await house.recover()
    assert await moves(house, view.run_id) == [("pending", "running"), ("running", "interrupted")]


async def test_a_simulation_whose_worker_sends_heartbeats_in_time_keeps_running(house: House) -> None:
    view, player = await running(house)
    for number in range(1, 6):
        house.clock.jump(50)
        await house.heard(renew(player.grant, number))
        assert (await player.beat(1)).go_on
        await house.recover()
    assert (await simulations(house).get(view.run_id)).status == "running"


async def test_a_pause_is_a_request_which_its_worker_honours(house: House) -> None:
    view, player = await running(house)
    requested = await simulations(house).pause(view.run_id)
    assert (requested.status, requested.pause_requested) == ("running", True)
    again = await simulations(house).pause(view.run_id)
    assert again.version == requested.version
    assert (await player.beat(3)).pause
    answer = await player.say(Paused(step=3, checkpoint=msgspec.Raw(b"3")))
    assert answer.go_on
    paused = await simulations(house).get(view.run_id)
    assert (paused.status, paused.pause_requested, paused.current_step, paused.saved_step) == (
        "paused", False, 3, 3,
    )  # fmt: skip
    assert (await player.say(Paused(step=3))).go_on, "the answer was lost, and is asked for again"
    assert (await simulations(house).get(view.run_id)).version == paused.version


@pytest.mark.parametrize("verb", ["pause", "resume"])
async def test_pause_and_resume_of_a_cancelled_simulation_are_refused_with_its_status(
    house: House, verb: str
) -> None:
    made = await simulations(house).create_run(BY_HAND)
    await simulations(house).cancel(made.run_id)
    with pytest.raises(TransitionRefused, match="cancelled"):
        await getattr(simulations(house), verb)(made.run_id)


async def test_a_worker_cannot_pause_a_simulation_without_a_pause_request(house: House) -> None:
    view, player = await running(house)
    answer = await player.say(Paused(step=3))
    assert not answer.go_on
    assert "no pause or cancel was requested" in answer.reason
    assert (await simulations(house).get(view.run_id)).status == "running"


async def test_a_pending_simulation_and_its_job_are_cancelled_at_once(house: House) -> None:
    made = await simulations(house).create_run(SPEC)
    ended = await simulations(house).cancel(made.run_id, reason="not needed")
    assert (ended.status, ended.completed_at is not None) == ("cancelled", True)
    assert (await house.view(made.job_id)).state == "CANCELED"


async def test_a_running_simulation_is_cancelled_after_its_current_step(house: House) -> None:
    view, player = await running(house)
    requested = await simulations(house).cancel(view.run_id)
    assert (requested.status, requested.cancel_requested) == ("running", True)
    assert (await player.beat(5)).pause
    answer = await player.say(Paused(step=5))
    assert (answer.go_on, answer.status) == (True, "cancelled")
    assert await moves(house, view.run_id) == [
        ("pending", "running"), ("running", "paused"), ("paused", "cancelled"),
    ]  # fmt: skip
    assert await faults(house) == []


async def test_dangers_are_counted_once_and_journalled(house: House) -> None:
    view, player = await running(house)
    first, second = Danger(1, 2, "beds are full"), Danger(2, 3, "no more masks")
    await player.beat(2, dangers=(first,))
    await player.beat(3, dangers=(first, second))
    assert (await simulations(house).get(view.run_id)).danger_count == 2
    reasons = [entry.note.reason for entry in await simulations(house).history(view.run_id)]
    assert [text for text in reasons if "step" in text] == ["step 2: beds are full", "step 3: no more masks"]
    await player.complete()
    assert (await simulations(house).get(view.run_id)).danger_count == 2


async def test_lists_filter_before_they_page_newest_first(house: House) -> None:
    manager = simulations(house)
    for number in range(12):
        priority = "high" if number % 3 == 0 else "low"
        spec = SimulationSpec(scenario_name=f"Model {number:02}", priority=priority, run_id=f"r{number:02}")
        await manager.create_run(spec)
        house.clock.jump(1)
        if number % 2:
            await manager.cancel(f"r{number:02}")

    async def ids(wanted: SimulationFilter, limit: int) -> list[list[str]]:
        pages, cursor = [], ""
        while True:
            page, cursor = await manager.list_runs(wanted, cursor=cursor, limit=limit)
            pages.append([view.run_id for view in page])
            if not cursor:
                return pages

    assert await ids(SimulationFilter(statuses=("canceled",)), 4) == [
        ["r11", "r09", "r07", "r05"],
        ["r03", "r01"],
    ]
    assert await ids(SimulationFilter(priority="high"), 3) == [["r09", "r06", "r03"], ["r00"]]
    assert await ids(SimulationFilter(text="MODEL 1"), 1) == [["r11"], ["r10"], []]
    assert await ids(SimulationFilter(statuses=("pending",), text="model 0", priority="high"), 5) == [
        ["r06", "r00"]
    ]
    assert (await manager.count(SimulationFilter(statuses=("pending",)))).number == 6


async def test_prune_removes_only_simulations_that_ended_longer_ago_than_the_given_age(house: House) -> None:
    view, player = await running(house, run_id="old")
    await player.complete()
    made = await simulations(house).create_run(BY_HAND)
    house.clock.jump(86_400)
    young = await simulations(house).create_run(msgspec.structs.replace(BY_HAND, run_id="young"))
    await simulations(house).cancel(young.run_id)
    pruned = await simulations(house).prune(timedelta(hours=1))
    assert pruned.records == 1
    assert await simulations(house).get_state(view.run_id) is None
    assert await simulations(house).get_state(made.run_id) is not None
    assert await simulations(house).get_state("young") is not None


async def test_a_simulation_checkpoint_over_the_size_limit_is_refused(house: House) -> None:
    _, player = await running(house)

    with pytest.raises(TooLarge, match="checkpoint"):
        await player.say(Beat(step=1, checkpoint=msgspec.Raw(b'"' + b"x" * 300_000 + b'"')))


async def test_the_end_is_reported_with_its_result(house: House) -> None:
    view, player = await running(house)
    assert (await player.complete()).go_on
    assert (await player.complete()).go_on
    done = await simulations(house).get(view.run_id)
    assert (done.status, done.result, done.current_step) == ("completed", msgspec.Raw(b"42"), 10)
    with pytest.raises(TerminalState):
        await simulations(house).cancel(view.run_id)
