"""The judge of simulations: it knows each simulation, its pulse, and the steps that were reported."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from interlock.lifecycles import simulation
from interlock.lifecycles.simulation import SIMULATION, SimulationState
from interlock.store.records import Record
from interlock.systems.orchestrator.tokens import read_token
from interlock.systems.simulations.body import PULSE, PulseBody, SimulationBody, decode_body, decode_pulse
from interlock.wire.simulations import AnySimulationMessage
from interlock_verification.claims import ClientRequest, DecodedJob
from interlock_verification.worlds.claims.simulations import (
    CancelledSimulation,
    ChainState,
    CompletedSimulation,
    PulseTransition,
    ResumedSimulation,
    SimulationTransition,
    SimulationWritten,
)
from interlock_verification.worlds.network import ClaimWatcher


class SimulationArguments(msgspec.Struct, frozen=True):
    """The input of a simulation that determines its end."""

    number: int
    steps: int


class SimulationJudge:
    """Observes the store, and reports facts about simulations."""

    def __init__(self, watcher: ClaimWatcher, look_of: Callable[[str], DecodedJob | None]) -> None:
        self._watcher = watcher
        self._look_of = look_of
        self._known: dict[str, tuple[SimulationState, SimulationBody]] = {}
        self._pulses: dict[str, PulseBody] = {}
        self._messages: dict[str, dict[tuple[int, int, str], set[int]]] = {}
        """The reported steps of each simulation, by execution, attempt and runner."""
        self._of: dict[int, str] = {}
        self.cancels: set[str] = set()
        """Simulations whose cancellation was requested."""
        self.with_lost_writes: set[str] = set()
        """Simulations with data lost in a fail-over."""

    def acknowledged(self, number: int, run_id: str) -> None:
        """Check that a submission has one simulation."""
        before = self._of.setdefault(number, run_id)
        made = ClientRequest([one for one in (before, run_id) if one not in self.with_lost_writes])
        self._watcher.check(made, run_id, lambda: f"simulation {number} has become {before} and {run_id}")

    def unsettled(self) -> list[str]:
        """Return the simulations that have not ended."""
        return [name for name, (state, _) in self._known.items() if state not in simulation.ENDED]

    def known(self) -> list[str]:
        """Return the existing simulations."""
        return list(self._known)

    def gone(self, run_id: str) -> None:
        """Handle a pruned simulation."""
        for kept in (self._known, self._pulses, self._messages):
            kept.pop(run_id, None)

    # Messages and steps

    def message_sent(self, token: str, runner_id: str, message: AnySimulationMessage) -> None:
        """Record a message of a worker when it is sent.

        It may arrive at any time.
        """
        read = read_token(token)
        look = self._look_of(read.job_id) if read is not None else None
        if read is None or look is None or look.body.simulation is None:
            return
        part = look.body.simulation
        messages = self._messages.setdefault(part.run_id, {})
        messages.setdefault((part.execution, read.index, runner_id), set()).add(message.step)

    def goes_on(self, run_id: str, step: int, restored: ChainState | None, number: int) -> None:
        """Check the state from which a handler continues."""
        if step:
            self._watcher.saw("a simulation continues on another worker")
        self._watcher.check(ResumedSimulation(run_id, number, step, restored), run_id)

    # Writes

    def written(self, record: Record) -> None:
        """Handle a changed simulation or pulse."""
        if record.kind == SIMULATION.name:
            self._simulation_written(record)
        elif record.kind == PULSE.name:
            self._pulse_written(record)

    def _simulation_written(self, record: Record) -> None:
        state, body = SimulationState(record.state), decode_body(record)
        before = self._known.get(record.id)
        self._known[record.id] = state, body
        if before is None or before[0] is not state:
            self._watcher.saw(f"simulation {state}")
        self._watcher.check(SimulationWritten(record.id, state, body), record.id)
        if before is None:
            return
        self._watcher.check(SimulationTransition(record.id, *before, state, body), record.id)
        if before[0] is not state:
            self._ended(record.id, state, body)

    def _ended(self, run_id: str, state: SimulationState, body: SimulationBody) -> None:
        if state is simulation.CANCELLED:
            self._watcher.check(CancelledSimulation(run_id, run_id in self.cancels), run_id)
        if state is simulation.COMPLETED:
            wanted = msgspec.json.decode(body.spec.input, type=SimulationArguments)
            assert isinstance(body.result, msgspec.Raw)
            result = msgspec.json.decode(body.result, type=ChainState)
            end = CompletedSimulation(run_id, wanted.number, wanted.steps, body.data.current_step, result)
            self._watcher.check(end, run_id)

    def _pulse_written(self, record: Record) -> None:
        now, before = decode_pulse(record), self._pulses.get(record.id, PulseBody())
        self._pulses[record.id] = now
        runner = (before.execution, before.attempt, before.worker_id)
        reported = self._messages.get(record.id, {}).get(runner, set())
        known = None if record.id in self.with_lost_writes else reported
        self._watcher.check(PulseTransition(record.id, before, now, known), record.id)

    # Faults

    def lost(self, kind: str, name: str, back_to: Record | None) -> None:
        """Handle a simulation or pulse with writes lost in a fail-over."""
        self.with_lost_writes.add(name)
        if kind == SIMULATION.name:
            self._known.pop(name, None)
            if back_to is not None:
                self._known[name] = SimulationState(back_to.state), decode_body(back_to)
        elif kind == PULSE.name:
            self._pulses.pop(name, None)
            if back_to is not None:
                self._pulses[name] = decode_pulse(back_to)
