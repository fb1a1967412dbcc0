"""A simulation that is being decided about, with its pulse. Pure; the tables have the rules.

Whatever takes the simulation into or out of running is told to its pulse, and both are one commit. A
sign of life changes the pulse alone, and is judged by the simulation's table all the same.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from interlock.lifecycles import simulation
from interlock.lifecycles.couplings import COUPLINGS, Circumstances
from interlock.lifecycles.simulation import SIMULATION, Simulation, SimulationState
from interlock.machine import Event, Moved, Refused
from interlock.store.records import Change, Commit, Note, Record, StepLine
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.simulations import pulse
from interlock.systems.simulations.body import (
    Execution,
    SimulationBody,
    decode_body,
    decode_pulse,
    encode,
    joined,
)
from interlock.systems.simulations.listing import labels_of
from interlock.systems.simulations.pulse import PULSE, PulseBody, PulseState
from interlock.wire.simulations import PRIORITIES, Danger, SimulationSpec, SimulationWord

MOST_TOLD = 100
"""How many dangers of one word are told one by one; all of them are counted."""


class Draft:
    """The working copy of one simulation and its pulse."""

    def __init__(
        self,
        run_id: str,
        state: SimulationState,
        body: SimulationBody,
        now: datetime,
        settings: OrchestratorSettings,
        record: Record | None = None,
        pulse_record: Record | None = None,
    ) -> None:
        self.id = run_id
        self.state = state
        self.body = body
        self.now = now
        self.record = record
        self.pulse_record = pulse_record
        self.pulse = decode_pulse(pulse_record)
        self._pulse_state = PulseState(pulse_record.state) if pulse_record else PULSE.initial
        self.deadline_at = pulse_record.deadline_at if pulse_record else None
        self._settings = settings
        self._lines: list[StepLine] = []
        self._pulse_lines: list[StepLine] = []
        self._told: list[str] = []

    @classmethod
    def new(cls, run_id: str, spec: SimulationSpec, now: datetime, settings: OrchestratorSettings) -> Draft:
        """One that has just been asked for."""
        body = SimulationBody(spec=spec, data=Simulation(created_at=now))
        return cls(run_id, SIMULATION.initial, body, now, settings)

    @classmethod
    def of(
        cls, record: Record, pulse_record: Record | None, now: datetime, settings: OrchestratorSettings
    ) -> Draft:
        """A working copy of one that is there."""
        draft = cls(
            record.id,
            SimulationState(record.state),
            decode_body(record),
            now,
            settings,
            record,
            pulse_record,
        )
        draft.body.data = joined(draft.body.data, draft.pulse)
        return draft

    # Telling

    def tell(self, event: Event) -> Refused[SimulationState] | None:
        """Say something to the simulation; answers why it is refused, if it is."""
        decided = SIMULATION.decide(self.state, self.body.data, event)
        if not isinstance(decided, Moved):
            return decided
        self.state, self.body.data = decided.state, decided.data
        for step in decided.steps:
            self._lines.append(
                StepLine(SIMULATION.name, "", step.event, step.source, step.target, step.owner, step.moves)
            )
            if step.moves:
                self._hand_over(event)
            facts = Circumstances(stopping=self.body.data.cancel_requested)
            for coupling in COUPLINGS.after(step, facts):
                if coupling.effect is SIMULATION and coupling.event is simulation.Cancel:
                    self.tell(simulation.Cancel(at=self.now))
        return None

    def interrupt(
        self, event: simulation.Interrupt | simulation.HeartbeatLost, *, hold: bool = False
    ) -> Refused[SimulationState] | None:
        """Take the simulation from its worker; return the refusal, if there is one.

        An accepted pause survives that, as `hold` does: then no further attempt goes on by itself.
        """
        paused = self.body.data.pause_requested
        if refused := self.tell(event):
            return refused
        if paused or hold:
            self.body.execution = msgspec.structs.replace(self.body.execution, held=True, awaited=False)
        if paused:
            why = f"{self.body.data.error}; a pause was requested, so it stands until it is resumed"
            self.body.data = msgspec.structs.replace(self.body.data, error=why)
        self.body.trouble = self.body.data.error or ""
        return None

    def must(self, event: Event) -> None:
        """Say something, and raise in the table's words when it is refused."""
        if refused := self.tell(event):
            raise refused.error()

    def beat(self, word: SimulationWord) -> None:
        """What a sign of life brings along; the simulation has accepted it."""
        self._tell_pulse(pulse.beat)
        self._note(word)

    def note(self, word: SimulationWord) -> None:
        """What any other word brings along, before the simulation is told of it."""
        self._note(word)
        self.body.danger_count = self.pulse.dangers

    def execute(self, job_id: str, queue: str = "") -> None:
        """Another execution is awaited; what is said by an earlier one counts no more."""
        number = self.body.execution.number + 1
        self.body.execution = Execution(number=number, job_id=job_id, awaited=bool(job_id), queue=queue)
        self.body.trouble = ""

    def begun(self, attempt: int) -> None:
        """An attempt at the job executes it from now on."""
        self.body.execution = msgspec.structs.replace(self.body.execution, attempt=attempt, awaited=False)
        self.pulse.execution, self.pulse.attempt = self.body.execution.number, attempt
        self.body.said = self.body.trouble = ""
        self.pulse.samples = self.pulse.samples.until(self.pulse.saved_step)  # later steps are taken again

    # What it has become

    def commit(self, *, mark: str, actor: str, reason: str = "", more: tuple[Change, ...] = ()) -> Commit:
        """Both records as they have become, and what must become true with them."""
        note = Note(steps=tuple(self._lines), actor=actor, reason=reason, request_id=mark)
        spec = self.body.spec
        change = Change(
            kind=SIMULATION.name,
            id=self.id,
            expected=self.record.version if self.record else 0,
            state=self.state,
            body=encode(self.body),
            queue=spec.queue,
            labels=labels_of(spec),
            priority=PRIORITIES[spec.priority],
            note=note,
        )
        # A request for a pause leaves the pulse alone: who beats meanwhile is not disturbed by it.
        beside = (self._pulse_change(mark, actor),) if self._pulse_lines or not self.pulse_record else ()
        # The pulse goes first: of what is told together, a danger has come before the end.
        return Commit(changes=(*beside, change, *more))

    def beat_commit(self, *, mark: str, actor: str) -> Commit:
        """The pulse alone: a sign of life is no change of the simulation."""
        return Commit(changes=(self._pulse_change(mark, actor),))

    # How the pulse follows

    def _hand_over(self, event: Event) -> None:
        if self.state is simulation.RUNNING:
            self._tell_pulse(pulse.take)
            self.pulse.worker_id, self.pulse.at = self.body.data.worker_id or "", self.now
        elif self.state in simulation.ENDED:
            self._tell_pulse(pulse.finish)
        else:
            silent = isinstance(event, simulation.HeartbeatLost)
            self._tell_pulse(pulse.fall_silent if silent else pulse.rest)
        if self.state is not simulation.RUNNING:
            self.body.danger_count = self.pulse.dangers

    def _tell_pulse(self, event: Event) -> None:
        decided = PULSE.decide(self._pulse_state, None, event)
        if not isinstance(decided, Moved):
            return
        self._pulse_state = decided.state
        silence_s = self._settings.durations.simulation_silence_s
        for step in decided.steps:
            self._pulse_lines.append(
                StepLine(PULSE.name, "", step.event, step.source, step.target, step.owner, step.moves)
            )
            if step.arms:
                self.deadline_at = self.now + timedelta(seconds=silence_s)
            elif step.moves:
                self.deadline_at = None

    def _note(self, word: SimulationWord) -> None:
        self.pulse.at = self.now
        self.pulse.step = max(self.pulse.step, word.step)
        if word.total_steps is not None:
            self.pulse.total_steps = word.total_steps
        if isinstance(word.checkpoint, msgspec.Raw) and word.step >= self.pulse.saved_step:
            self.pulse.checkpoint, self.pulse.saved_step = word.checkpoint, word.step
            self.pulse.saved_at = self.now
        if word.samples:
            self.pulse.samples = self.pulse.samples.added(word.samples)
        self._warn(word.dangers)

    def _warn(self, dangers: tuple[Danger, ...]) -> None:
        fresh = [each for each in dangers if each.number > self.pulse.dangers]
        for each in fresh:
            self._tell_pulse(pulse.danger)
            self.pulse.dangers = each.number
        self._told += [f"step {each.step}: {each.text}" for each in fresh[:MOST_TOLD]]

    def _pulse_change(self, mark: str, actor: str) -> Change:
        """A sign of life alone is no news; a danger is."""
        self.pulse.step = max(self.pulse.step, self.body.data.current_step)
        news = [line for line in self._pulse_lines if line.moves or line.event == pulse.danger.name]
        note = None
        if news or not self.pulse_record:
            note = Note(steps=tuple(news), actor=actor, reason="\n".join(self._told), request_id=mark)
        return Change(
            kind=PULSE.name,
            id=self.id,
            expected=self.pulse_record.version if self.pulse_record else 0,
            state=self._pulse_state,
            body=encode(self.pulse),
            deadline_at=self.deadline_at,
            note=note,
        )


def told_of(body: PulseBody, execution: int, attempt: int, worker_id: str) -> bool:
    """Whether the pulse belongs to this attempt of this worker."""
    return (body.execution, body.attempt, body.worker_id) == (execution, attempt, worker_id)
