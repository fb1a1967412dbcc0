"""The doors for programs, and what can be decorated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock import Registry, SimulationContext, simulation
from interlock.errors import CannotLoad, InvalidArguments, UnknownSimulation
from interlock.sync import Interlock
from interlock.wire.simulations import SimulationSpec

MINE = Registry()


@simulation(registry=MINE, total_steps=3, priority="high", queue="models", losses=2)
def island(sim: SimulationContext, rabbits: int = 40) -> Iterator[int]:
    """Steps that say nothing."""
    for step in sim.steps():
        yield rabbits + step


def test_synchronous_programs_do_the_same(tmp_path: Path) -> None:
    with Interlock(f"sqlite:///{tmp_path}/jobs.db") as il:
        run_id = il.simulations.start(island, run_id="one", rabbits=3)
        view = il.simulations.get(run_id)
        assert (view.run_id, view.total_steps, view.priority, view.queue) == ("one", 3, "high", "models")
        assert bytes(view.input) == b'{"rabbits":3}'
        found, cursor = il.simulations.find(statuses=("pending",))
        assert ([each.run_id for each in found], cursor) == (["one"], "")
        assert il.simulations.cancel("one", reason="no").status == "cancelled"
        assert il.simulations.wait("one", timeout_s=60).status == "cancelled"
        with pytest.raises(UnknownSimulation):
            il.simulations.pause("two")
        il.simulations.create_run(SimulationSpec(run_id="hand"))
        il.simulations.transition("hand", "running", worker_id="me")
        assert il.simulations.heartbeat("hand", "me", 3).current_step == 3
        assert il.simulations.check_stale_runs(3_600) == []
        assert len(il.simulations.history("hand")) == 4


def test_arguments_are_checked_before_anything_is_stored() -> None:
    with pytest.raises(InvalidArguments, match="did you mean rabbits"):
        island.run(rabits=3)
    with pytest.raises(InvalidArguments):
        island.run(rabbits="many")
    assert "sim" not in island.takes


def test_the_simulation_decorator_refuses_an_invalid_function_and_an_unknown_priority() -> None:
    def stepless(people: int) -> int:
        return people

    with pytest.raises(CannotLoad, match="neither yields nor takes a state"):
        simulation(registry=Registry())(stepless)
    with pytest.raises(CannotLoad, match="there is no priority"):
        simulation(registry=Registry(), priority="urgent")(island.function)

    def twice(sim: SimulationContext, other: SimulationContext) -> Iterator[None]:
        yield

    with pytest.raises(CannotLoad, match="twice"):
        simulation(registry=Registry())(twice)
