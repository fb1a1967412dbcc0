"""Claims about the simulations of a world: checked at every write, and at every step.

A simulation of a world is a chain: each state follows only from the previous one. So every state shows
whether a step was left out, taken twice or taken out of order, however often its worker has died on the way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

from interlock.lifecycles import simulation
from interlock.lifecycles.simulation import SIMULATION, SimulationState
from interlock.store.records import Record
from interlock.systems.orchestrator.tokens import read_token
from interlock.systems.simulations.body import PULSE, PulseBody, SimulationBody, decode_body, decode_pulse
from interlock.wire.simulations import AnySimulationMessage
from interlock_verification.claims import SUBMISSION_CLAIMS, ClientRequest, DecodedJob
from interlock_verification.worlds.network import ClaimWatcher

TABLE_HOLDS = "the invariants of the simulation table hold"
STAYS_ENDED = "an ended simulation never changes"
FORWARD = "the steps of a simulation are never taken back"
RIGHTFUL = "accepted reports on a simulation come from its runner"
SAVED = "the saved state of a simulation is that after its saved step"
GOES_ON = "a simulation resumes after its saved step, with its saved state"
ENDS_THE_SAME = "the result of a simulation is the same as without faults"
ASKED_FOR = "a simulation is cancelled only after a request"


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


class SimulationArguments(msgspec.Struct, frozen=True):
    """The input of a simulation that determines its end."""

    number: int
    steps: int


class SimulationJudge:
    """Observes the store, and checks every claim about simulations."""

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
        self.shaken: set[str] = set()
        """Simulations with data lost in a fail-over."""

    def acknowledged(self, number: int, run_id: str) -> None:
        """Check that a submission has one simulation."""
        before = self._of.setdefault(number, run_id)
        made = ClientRequest([one for one in (before, run_id) if one not in self.shaken])
        description = f"wish {number} has become {before} and {run_id}"
        self._watcher.check(SUBMISSION_CLAIMS, made, lambda: description, run_id)

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
        """Record a message of a worker when it is sent, since it may arrive at any time."""
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
        expected = state_after(number, step)
        if (restored or ChainState.first(number)) != expected:
            self._broke(GOES_ON, f"{run_id} goes on after step {step} with {restored}", run_id)

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
        if SIMULATION.broken(state, body.data):
            self._broke(TABLE_HOLDS, f"{record.id} is {state}", record.id)
        if before is None:
            return
        if SIMULATION.broken_across(before[0], before[1].data, state, body.data):
            self._broke(TABLE_HOLDS, f"{record.id}: {before[0]} → {state}", record.id)
        if before[0] in simulation.ENDED and state is not before[0]:
            self._broke(STAYS_ENDED, f"{record.id}: {before[0]} → {state}", record.id)
        elif before[0] is not state:
            self._ended(record.id, state, body)

    def _ended(self, run_id: str, state: SimulationState, body: SimulationBody) -> None:
        if state is simulation.CANCELLED and run_id not in self.cancels:
            self._broke(ASKED_FOR, run_id, run_id)
        if state is simulation.COMPLETED:
            wanted = msgspec.json.decode(body.spec.input, type=SimulationArguments)
            assert isinstance(body.result, msgspec.Raw)
            result = msgspec.json.decode(body.result, type=ChainState)
            if result != state_after(wanted.number, wanted.steps) or body.data.current_step != wanted.steps:
                self._broke(ENDS_THE_SAME, f"{run_id}: {result} after {body.data.current_step}", run_id)

    def _pulse_written(self, record: Record) -> None:
        now, before = decode_pulse(record), self._pulses.get(record.id, PulseBody())
        self._pulses[record.id] = now
        if now.step < before.step or now.saved_step < before.saved_step:
            description = f"{record.id}: {before.step}, {before.saved_step} → {now.step}, {now.saved_step}"
            self._broke(FORWARD, description, record.id)
        if record.id not in self.shaken:
            self._rightful(record.id, before, now)
        if now.saved_step > before.saved_step:
            raw = now.checkpoint if isinstance(now.checkpoint, msgspec.Raw) else b"null"
            state = msgspec.json.decode(raw, type=ChainState | None)
            if state is None or state != state_after(state.number, now.saved_step):
                self._broke(SAVED, f"{record.id} after step {now.saved_step}: {state}", record.id)

    def _rightful(self, run_id: str, before: PulseBody, now: PulseBody) -> None:
        whose = (before.execution, before.attempt, before.worker_id)
        messages = self._messages.get(run_id, {}).get(whose, set())
        for new, old in ((now.step, before.step), (now.saved_step, before.saved_step)):
            if new != old and new not in messages:
                self._broke(RIGHTFUL, f"{run_id} is at step {new}, and {whose} has said {messages}", run_id)

    # Faults

    def lost(self, kind: str, name: str, back_to: Record | None) -> None:
        """Handle a simulation or pulse with writes lost in a fail-over."""
        self.shaken.add(name)
        if kind == SIMULATION.name:
            self._known.pop(name, None)
            if back_to is not None:
                self._known[name] = SimulationState(back_to.state), decode_body(back_to)
        elif kind == PULSE.name:
            self._pulses.pop(name, None)
            if back_to is not None:
                self._pulses[name] = decode_pulse(back_to)

    def _broke(self, claim: str, description: str, about: str) -> None:
        self._watcher.broke(claim, description, about)
