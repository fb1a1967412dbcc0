"""The records of a simulation: its own, and that of its pulse. Pure; the tables have the rules.

Events that take the simulation into or out of running are sent to its pulse, and both are one commit. A
heartbeat changes only the pulse, but is decided by the simulation's table.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar

import msgspec

from interlock.engine.aggregate import Aggregate, Columns
from interlock.lifecycles import simulation
from interlock.lifecycles.couplings import COUPLINGS, Circumstances, Recipient
from interlock.lifecycles.simulation import SIMULATION, SimulationData, SimulationState
from interlock.machine import Couplings, Event, Step, couple
from interlock.machine.cascade import EventRules, Refusal, Root, RootOf, Wiring, to
from interlock.machine.couplings import AnyMachine
from interlock.store.records import Change, Commit, Record, StepLine
from interlock.systems.simulations import body
from interlock.systems.simulations.body import (
    PULSE,
    Execution,
    PulseBody,
    PulseState,
    SimulationBody,
    decode_body,
    decode_pulse,
    encode,
    joined,
    labels_of,
)
from interlock.systems.simulations.settings import SimulationSettings
from interlock.wire.simulations import PRIORITIES, Danger, SimulationMessage, SimulationSpec

MOST_TOLD = 100
"""Maximum warnings of one message in the journal; all of them are counted."""


class _Receiver(StrEnum):
    ITS_PULSE = "its pulse"


_SILENT = simulation.HeartbeatLost
_ENDS = tuple(event for event in SIMULATION.events if event is not _SILENT)
_AT_REST = (simulation.PAUSED, simulation.INTERRUPTED)

# fmt: off
PULSES = Couplings[Any]((
    couple(SIMULATION, simulation.RUNNING, PULSE, body.take, to=_Receiver.ITS_PULSE,
           why="Heartbeats of its worker are expected from now on."),
    couple(SIMULATION, _AT_REST, PULSE, body.rest, to=_Receiver.ITS_PULSE, by=_ENDS,
           why="No worker executes it, so no heartbeat is expected."),
    couple(SIMULATION, _AT_REST, PULSE, body.fall_silent, to=_Receiver.ITS_PULSE, by=_SILENT,
           why="No heartbeat came, and none is expected any more."),
    couple(SIMULATION, simulation.ENDED, PULSE, body.finish, to=_Receiver.ITS_PULSE,
           why="No further heartbeat is expected."),
))
# fmt: on


class PulseAggregate(Aggregate):
    """The working copy of a pulse, for the change of its record: the simulation sends its events."""

    __slots__ = ("body",)
    kind: ClassVar[str] = PULSE.name

    def __init__(
        self, run_id: str, root: Root, body: PulseBody, now: datetime, record: Record | None
    ) -> None:
        super().__init__(run_id, root, now, record)
        self.body: PulseBody = body

    def parts(self) -> Iterable[tuple[AnyMachine, Any, None]]:
        """Return the pulse."""
        return ((PULSE, self.root, None),)

    def seconds(self, setting: str) -> float:
        """Raise: the simulation starts its timer."""
        raise KeyError(setting)

    def columns(self) -> Columns:
        """Return no columns: a pulse is found by its id."""
        return Columns()

    def encoded(self) -> bytes:
        """Return the body, encoded for the record."""
        return encode(self.body)


class SimulationAggregate(Aggregate):
    """The working copy of one simulation and its pulse."""

    __slots__ = ("_danger_lines", "body", "pulse", "pulse_record", "pulse_root", "settings")
    kind: ClassVar[str] = SIMULATION.name

    def __init__(
        self,
        run_id: str,
        body: SimulationBody,
        now: datetime,
        settings: SimulationSettings,
        record: Record | None = None,
        pulse_record: Record | None = None,
    ) -> None:
        state = SIMULATION.initial if record is None else SimulationState(record.state)
        super().__init__(run_id, RootOf(state, body), now, record)
        self.body: SimulationBody = body
        self.settings: SimulationSettings = settings
        self.pulse_record: Record | None = pulse_record
        self.pulse: PulseBody = decode_pulse(pulse_record)
        self.pulse_root: Root = (
            Root(PULSE.initial)
            if pulse_record is None
            else Root(PulseState(pulse_record.state), None, pulse_record.deadline_at)
        )
        """The machine of the pulse, which has the timer of both."""
        self._danger_lines: list[str] = []

    @classmethod
    def new(
        cls, run_id: str, spec: SimulationSpec, now: datetime, settings: SimulationSettings
    ) -> SimulationAggregate:
        """Return a new simulation."""
        return cls(run_id, SimulationBody(spec=spec, data=SimulationData(created_at=now)), now, settings)

    @classmethod
    def of(
        cls, record: Record, pulse_record: Record | None, now: datetime, settings: SimulationSettings
    ) -> SimulationAggregate:
        """Return the working copy of both records."""
        made = cls(record.id, decode_body(record), now, settings, record, pulse_record)
        made.body.data = joined(made.body.data, made.pulse)
        return made

    # Facts for the tables

    def facts(self, _: None) -> Circumstances:
        """Return the facts for couplings."""
        return Circumstances(stopping=self.body.data.cancel_requested)

    def seconds(self, setting: str) -> float:
        """Return how long a timer runs."""
        return float(getattr(self.settings, setting))

    def entered(self, step: Step[Any], _: None) -> None:
        """Record the worker, or the number of warnings."""
        if step.target is body.BEATING:
            self.pulse.worker_id, self.pulse.at = self.body.data.worker_id or "", self.now
        else:
            self.body.danger_count = self.pulse.dangers

    # Commands

    def interrupt(
        self, event: simulation.Interrupt | simulation.HeartbeatLost, *, hold: bool = False
    ) -> Refusal:
        """Take the simulation from its worker; return the refusal, if any.

        An accepted pause survives that, as `hold` does: then no further attempt continues automatically.
        """
        paused = self.body.data.pause_requested
        if refused := self.send(event):
            return refused
        if paused or hold:
            self.body.execution = msgspec.structs.replace(self.body.execution, held=True, awaited=False)
        if paused:
            why = f"{self.body.data.error}; a pause was requested, so it stays stopped until it is resumed"
            self.body.data = msgspec.structs.replace(self.body.data, error=why)
        self.body.trouble = self.body.data.error or ""
        return None

    def beat(self, message: SimulationMessage) -> None:
        """Record the payload of an accepted heartbeat."""
        self._save_pulse(body.beat)
        self._note(message)

    def note(self, message: SimulationMessage) -> None:
        """Record the payload of another message, before its event."""
        self._note(message)
        self.body.danger_count = self.pulse.dangers

    def execute(self, job_id: str, queue: str = "") -> None:
        """Await another execution; messages of earlier ones are ignored."""
        number = self.body.execution.number + 1
        self.body.execution = Execution(number=number, job_id=job_id, awaited=bool(job_id), queue=queue)
        self.body.trouble = ""

    def begun(self, attempt: int) -> None:
        """Record the attempt that executes it from now on."""
        self.body.execution = msgspec.structs.replace(self.body.execution, attempt=attempt, awaited=False)
        self.pulse.execution, self.pulse.attempt = self.body.execution.number, attempt
        self.body.said = self.body.trouble = ""
        self.pulse.samples = self.pulse.samples.until(self.pulse.saved_step)  # later steps are repeated

    # Commits

    def columns(self) -> Columns:
        """Return the columns by which the simulation is found."""
        spec = self.body.spec
        return Columns(queue=spec.queue, labels=labels_of(spec), priority=PRIORITIES[spec.priority])

    def encoded(self) -> bytes:
        """Return the body, encoded for the record."""
        return encode(self.body)

    @property
    def lines(self) -> tuple[StepLine, ...]:
        """The steps of the simulation; its pulse has a separate journal."""
        return tuple(line for line in super().lines if line.machine == SIMULATION.name)

    def commit(
        self, *, commit_id: str, actor: str, reason: str = "", more: tuple[Change, ...] = ()
    ) -> Commit:
        """Return the commit of both records, with additional changes."""
        change = self.change(commit_id=commit_id, actor=actor, reason=reason, note=True)
        # A pause request does not touch the pulse, so that it does not conflict with heartbeats.
        touched = not self.pulse_record or any(effects.machine is PULSE for _, effects in self.taken)
        beside = (self._pulse_change(commit_id, actor),) if touched else ()
        # The pulse comes first: a warning precedes the end in the journal.
        return Commit(changes=(*beside, change, *more))

    def beat_commit(self, *, commit_id: str, actor: str) -> Commit:
        """Return the commit of the pulse only, for a heartbeat."""
        return Commit(changes=(self._pulse_change(commit_id, actor),))

    def _save_pulse(self, event: Event) -> None:
        self.send_to(PULSE, self.pulse_root, event)

    def _note(self, message: SimulationMessage) -> None:
        self.pulse.at = self.now
        self.pulse.step = max(self.pulse.step, message.step)
        if message.total_steps is not None:
            self.pulse.total_steps = message.total_steps
        if isinstance(message.checkpoint, msgspec.Raw) and message.step >= self.pulse.saved_step:
            self.pulse.checkpoint, self.pulse.saved_step = message.checkpoint, message.step
            self.pulse.saved_at = self.now
        if message.samples:
            self.pulse.samples = self.pulse.samples.added(message.samples)
        self._warn(message.dangers)

    def _warn(self, dangers: tuple[Danger, ...]) -> None:
        fresh = [each for each in dangers if each.number > self.pulse.dangers]
        for each in fresh:
            self._save_pulse(body.danger)
            self.pulse.dangers = each.number
        self._danger_lines += [f"step {each.step}: {each.text}" for each in fresh[:MOST_TOLD]]

    def _pulse_change(self, commit_id: str, actor: str) -> Change:
        """Return the change of the pulse.

        A heartbeat is not journalled; a warning is.
        """
        self.pulse.step = max(self.pulse.step, self.body.data.current_step)
        pulse = PulseAggregate(self.id, self.pulse_root, self.pulse, self.now, self.pulse_record)
        pulse.taken = [
            (owner, effects) for owner, effects in self.taken if effects.machine is PULSE and effects.is_news
        ]
        pulse.is_news = bool(pulse.taken)
        return pulse.change(commit_id=commit_id, actor=actor, reason="\n".join(self._danger_lines))


def _simulation(record: SimulationAggregate, _: None) -> Any:
    return record.root


def _pulse(record: SimulationAggregate, _: None) -> Root:
    return record.pulse_root


SimulationAggregate.wiring = PulseAggregate.wiring = Wiring(
    (SIMULATION, PULSE),
    (COUPLINGS, PULSES),
    {Recipient.ITSELF: to(SIMULATION, _simulation), _Receiver.ITS_PULSE: to(PULSE, _pulse)},
    events=EventRules(
        made={simulation.Cancel: lambda record, _: simulation.Cancel(at=record.now)}, quiet=(body.beat,)
    ),
    own_timers=(SIMULATION,),
    notes={
        SIMULATION: tuple(state for state in SIMULATION.states if state is not simulation.RUNNING),
        PULSE: (body.BEATING,),
    },
    durations=SimulationSettings.__struct_fields__,
)


def is_of_attempt(body: PulseBody, execution: int, attempt: int, worker_id: str) -> bool:
    """Return whether the pulse belongs to this attempt of this worker."""
    return (body.execution, body.attempt, body.worker_id) == (execution, attempt, worker_id)
