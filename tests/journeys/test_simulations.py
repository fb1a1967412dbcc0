"""Simulations on real workers: paused, killed, given back and gone on with, and always the same answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest
from tests.journeys import courses
from tests.journeys.conftest import Server
from tests.journeys.courses import STEPS, answer
from tests.journeys.crew import STEADY, Crew, Place, Worker, stores
from tests.waiting import PROGRAM_S

from interlock.engine.audit import audit
from interlock.errors import StoreUnavailable
from interlock.systems.catalogue import JOURNALLED
from interlock.wire.simulations import SimulationView

SILENCE_FIRST = msgspec.structs.replace(STEADY, lease_ttl_s=3_600.0, simulation_silence_s=600.0)
"""A simulation that is not heard of is missed before its lease ends."""
BEATS = 4


async def ready(crew: Crew, name: str = "anna", *options: str) -> Worker:
    worker = await crew.start(name, *options, module=courses.__name__)
    await worker.is_in("backing_off")
    return worker


async def sees(crew: Crew, run_id: str, true: Callable[[SimulationView], bool], what: str) -> SimulationView:
    """Wait until something is true of a simulation."""
    seen: list[SimulationView] = []

    async def look() -> bool:
        try:
            await crew.il.services.sweep()
            await crew.il.services.deliver()
            seen[:] = [await crew.il.simulations.get(run_id)]
        except StoreUnavailable:
            return False
        return true(seen[0])

    try:
        await crew.until(look, f"{what} is true of {run_id}")
    except AssertionError as error:
        states = [f"{view.status} at step {view.current_step}, execution {view.execution}" for view in seen]
        raise AssertionError(f"{error} It is {states}.") from None
    return seen[0]


async def is_in(crew: Crew, run_id: str, status: str) -> SimulationView:
    return await sees(crew, run_id, lambda view: view.status == status, f"it is {status}")


def result_of(view: SimulationView) -> object:
    assert isinstance(view.result, msgspec.Raw)
    return msgspec.json.decode(view.result)


async def sound(crew: Crew) -> list[object]:
    """Where the journal and the records disagree, once every job has ended that is there."""
    await crew.pass_time(crew.durations.cancel_deadline_s + 1)  # a dead worker confirms no cancel
    for view in (await crew.il.jobs())[0]:
        await crew.ended(view.id)
    return list((await audit(crew.il.services.store, JOURNALLED, ["job", "simulation", "pulse"])).faults)


@stores("sqlite")
async def test_a_killed_worker_interrupts_it_and_another_continues_to_the_same_answer(crew: Crew) -> None:
    await crew.open(SILENCE_FIRST)
    anna = await ready(crew)
    flu = await crew.il.simulations.start(courses.counting, run_id="flu", seed=7, hold_at=20)
    await crew.noted("held flu")

    await anna.kill()
    await crew.pass_time(SILENCE_FIRST.simulation_silence_s + 1)
    gone = await is_in(crew, "flu", "interrupted")
    assert (gone.current_step, gone.saved_step, gone.completed_at) == (19, 19, None)
    ben = await ready(crew, "ben")
    crew.open_gate("flu.20")
    await flu.resume()

    done = await is_in(crew, "flu", "completed")
    assert result_of(done) == {"number": answer(7)}
    assert crew.count("begins flu after 19") == 1
    assert (done.current_step, done.execution) == (STEPS, 2)
    undisturbed = await crew.il.simulations.start(courses.counting, seed=7)
    other = await is_in(crew, undisturbed.run_id, "completed")
    assert (result_of(other), other.danger_count) == (result_of(done), done.danger_count)
    assert ben.exit_code is None
    assert await sound(crew) == []


async def test_a_simulation_is_paused_between_two_steps_and_resumed_on_another_worker(crew: Crew) -> None:
    anna = await ready(crew)
    flu = await crew.il.simulations.start(courses.counting, run_id="flu", seed=3, hold_at=10)
    await crew.noted("held flu")
    assert (await flu.pause()).pause_requested
    crew.open_gate("flu.10")
    stands = await is_in(crew, "flu", "paused")
    assert (stands.current_step, stands.saved_step) == (10, 10)
    job = await crew.ended(stands.job_id)
    assert job.state == "COMPLETED"
    anna.ask_to_go()
    await anna.gone()
    await ready(crew, "ben")
    await flu.resume()
    done = await is_in(crew, "flu", "completed")
    assert result_of(done) == {"number": answer(3)}
    assert crew.notes.count("begins flu after 10") == 1


async def test_a_simulation_completes_without_a_resume_when_its_worker_shuts_down(crew: Crew) -> None:
    anna = await ready(crew)
    await crew.il.simulations.start(courses.counting, run_id="flu", seed=3, hold_at=10)
    await crew.noted("held flu")
    await ready(crew, "ben")
    anna.ask_to_go()
    crew.open_gate("flu.10")
    assert await anna.gone() == 0
    done = await is_in(crew, "flu", "completed")
    assert result_of(done) == {"number": answer(3)}
    assert (done.execution, crew.count("begins flu")) in ((1, 2), (1, 1))


async def test_a_simulation_sends_heartbeats_during_one_long_step(crew: Crew) -> None:
    await ready(crew)
    await crew.il.simulations.start(courses.counting, run_id="flu", seed=3, hold_at=2)
    await crew.noted("held flu")
    heartbeats: set[object] = set()

    def heard_often(view: SimulationView) -> bool:
        assert view.status == "running"
        heartbeats.add(view.last_heartbeat)
        return len(heartbeats) >= BEATS

    view = await sees(crew, "flu", heard_often, "it was heard again and again")
    assert view.current_step == 1, "all of it within one step"
    crew.open_gate("flu.2")
    await is_in(crew, "flu", "completed")


async def test_step_functions_and_coroutines_come_to_the_same_answer(crew: Crew) -> None:
    await ready(crew)
    by_steps = await crew.il.simulations.start(courses.stepping, seed=11)
    awaited = await crew.il.simulations.start(courses.waiting, run_id="slow", seed=11, hold_at=4)
    done = await is_in(crew, by_steps.run_id, "completed")
    assert result_of(done) == answer(11)
    await crew.noted("held slow")
    await awaited.pause()
    crew.open_gate("slow.4")
    stands = await awaited.wait(timeout_s=PROGRAM_S)
    assert (stands.status, stands.current_step) == ("paused", 4)
    await awaited.resume()
    ended = await awaited.wait(timeout_s=PROGRAM_S)
    assert (ended.status, result_of(ended)) == ("completed", answer(11))
    assert ended.total_steps == STEPS


async def test_a_step_that_fails_ends_it_and_a_cancel_ends_it_after_a_step(crew: Crew) -> None:
    await ready(crew)
    broken = await crew.il.simulations.start(courses.breaking)
    ended = await broken.wait(timeout_s=PROGRAM_S)
    assert (ended.status, ended.error) == ("failed", "ZeroDivisionError: nothing is left to divide by")
    assert ended.current_step == 2
    job = await crew.ended(ended.job_id)
    assert job.state == "FAILED"
    held = await crew.il.simulations.start(courses.counting, run_id="flu", seed=1, hold_at=5)
    await crew.noted("held flu")
    await held.cancel()
    crew.open_gate("flu.5")
    stopped = await held.wait(timeout_s=PROGRAM_S)
    assert (stopped.status, stopped.current_step) == ("cancelled", 5)


@pytest.fixture
async def crew_there(
    tmp_path: Path, own_server: Callable[[str], Server]
) -> AsyncIterator[tuple[Crew, Server]]:
    """A crew on a Redis that may be killed."""
    server = own_server("redis")
    crew = Crew(tmp_path, Place(server.url, server))
    await crew.open()
    yield crew, server
    print(crew.story())
    await crew.close()


async def test_every_simulation_completes_with_its_result_after_redis_is_killed_under_load(
    crew_there: tuple[Crew, Server],
) -> None:
    crew, server = crew_there
    await ready(crew, "anna", "--slots", "6")
    flights = [
        await crew.il.simulations.start(courses.counting, run_id=f"f{seed}", seed=seed, hold_at=10)
        for seed in range(6)
    ]
    await crew.noted("held", times=6)
    server.kill()
    for seed in range(6):
        crew.open_gate(f"f{seed}.10")
    server.start()
    for handle in flights:
        view = await sees(
            crew, handle.run_id, lambda view: view.status in ("completed", "interrupted"), "it is settled"
        )
        if view.status == "interrupted" and not view.resuming:
            await handle.resume()
    ended = await asyncio.gather(*(is_in(crew, handle.run_id, "completed") for handle in flights))
    assert [result_of(view) for view in ended] == [{"number": answer(seed)} for seed in range(6)]
    assert await sound(crew) == []
