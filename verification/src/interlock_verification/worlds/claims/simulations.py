"""Claims about simulations: of every value and step, of the saved state, and of the end.

A simulation of a world is a chain: each state follows only from the previous one. So every state shows
whether a step was left out, taken twice or taken out of order, however often its worker has died on the way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import msgspec

from interlock.lifecycles import simulation
from interlock.lifecycles.simulation import SIMULATION, SimulationState
from interlock.systems.simulations.body import PulseBody, SimulationBody
from interlock_verification.claims import FactClaim


class ChainState(msgspec.Struct, frozen=True):
    """A state of the chain, after a number of steps."""

    number: int
    step: int
    mark: str

    @classmethod
    def first(cls, number: int) -> ChainState:
        """Return the state before the first step."""
        return cls(number, 0, "")

    def after(self) -> ChainState:
        """Return the state one step later."""
        mark = hashlib.blake2b(f"{self.number}.{self.step}.{self.mark}".encode(), digest_size=6).hexdigest()
        return ChainState(self.number, self.step + 1, mark)


def state_after(number: int, steps: int) -> ChainState:
    """Return the state of a chain after a number of steps."""
    state = ChainState.first(number)
    for _ in range(steps):
        state = state.after()
    return state


class SimulationWritten(NamedTuple):
    """A written simulation."""

    run_id: str
    state: SimulationState
    body: SimulationBody

    def __str__(self) -> str:
        return f"{self.run_id} is {self.state}"


class SimulationTransition(NamedTuple):
    """Two successive values of a simulation."""

    run_id: str
    before: SimulationState
    body_before: SimulationBody
    after: SimulationState
    body_after: SimulationBody

    def __str__(self) -> str:
        return f"{self.run_id}: {self.before} → {self.after}"


class CancelledSimulation(NamedTuple):
    """A cancelled simulation."""

    run_id: str
    requested: bool

    def __str__(self) -> str:
        return self.run_id


class CompletedSimulation(NamedTuple):
    """A completed simulation."""

    run_id: str
    number: int
    steps: int
    """The number of steps that were submitted."""
    current_step: int
    result: ChainState

    def __str__(self) -> str:
        return f"{self.run_id}: {self.result} after {self.current_step}"


class PulseTransition(NamedTuple):
    """Two successive values of a pulse."""

    run_id: str
    before: PulseBody
    after: PulseBody
    reported: Collection[int] | None
    """The steps that its runner has reported; None if a fail-over has lost data of the simulation."""

    def __str__(self) -> str:
        steps = f"{self.before.step}, {self.before.saved_step} → {self.after.step}, {self.after.saved_step}"
        runner = (self.before.execution, self.before.attempt, self.before.worker_id)
        return f"{self.run_id}: {steps}; {runner} has reported {self.reported}; {self.after.checkpoint!r}"


class ResumedSimulation(NamedTuple):
    """The state from which a handler continues."""

    run_id: str
    number: int
    step: int
    restored: ChainState | None

    def __str__(self) -> str:
        return f"{self.run_id} continues after step {self.step} with {self.restored}"


def reports_are_of_the_runner(pulse: PulseTransition) -> bool:
    """Return whether its runner has reported each new step."""
    if pulse.reported is None:
        return True
    steps = ((pulse.after.step, pulse.before.step), (pulse.after.saved_step, pulse.before.saved_step))
    return all(new == old or new in pulse.reported for new, old in steps)


def saved_state_matches(pulse: PulseTransition) -> bool:
    """Return whether a newly saved state is that after the saved step."""
    if pulse.after.saved_step <= pulse.before.saved_step:
        return True
    raw = pulse.after.checkpoint if isinstance(pulse.after.checkpoint, msgspec.Raw) else b"null"
    state = msgspec.json.decode(raw, type=ChainState | None)
    return state is not None and state == state_after(state.number, pulse.after.saved_step)


def ends_as_without_faults(end: CompletedSimulation) -> bool:
    """Return whether the result is that of all submitted steps."""
    return end.result == state_after(end.number, end.steps) and end.current_step == end.steps


SIMULATION_CLAIMS: Sequence[FactClaim[Any]] = (
    FactClaim(
        "simulation.invariants",
        "the invariants of the simulation table hold",
        SimulationWritten,
        lambda written: not SIMULATION.broken(written.state, written.body.data),
    ),
    FactClaim(
        "simulation.step_invariants",
        "the invariants of the simulation table about each step hold",
        SimulationTransition,
        lambda step: (
            not SIMULATION.broken_across(step.before, step.body_before.data, step.after, step.body_after.data)
        ),
    ),
    FactClaim(
        "simulation.end_is_final",
        "an ended simulation never changes",
        SimulationTransition,
        lambda step: step.before not in simulation.ENDED or step.after is step.before,
    ),
    FactClaim(
        "simulation.cancel_was_requested",
        "a simulation is cancelled only after a request",
        CancelledSimulation,
        lambda cancelled: cancelled.requested,
    ),
    FactClaim(
        "simulation.same_result",
        "the result of a simulation is the same as without faults",
        CompletedSimulation,
        ends_as_without_faults,
    ),
    FactClaim(
        "simulation.goes_forward",
        "the steps of a simulation are never taken back",
        PulseTransition,
        lambda pulse: (
            pulse.after.step >= pulse.before.step and pulse.after.saved_step >= pulse.before.saved_step
        ),
    ),
    FactClaim(
        "simulation.reports_of_runner",
        "accepted reports on a simulation come from its runner",
        PulseTransition,
        reports_are_of_the_runner,
    ),
    FactClaim(
        "simulation.saved_state",
        "the saved state of a simulation is that after its saved step",
        PulseTransition,
        saved_state_matches,
    ),
    FactClaim(
        "simulation.resumes_saved",
        "a simulation resumes after its saved step, with its saved state",
        ResumedSimulation,
        lambda resumed: (
            (resumed.restored or ChainState.first(resumed.number))
            == state_after(resumed.number, resumed.step)
        ),
    ),
)
