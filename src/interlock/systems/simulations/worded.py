"""What a worker says about the simulation that it executes, judged. Pure.

Authority. Who may speak follows from the lease of its job: the execution and the attempt. Only those
that the pulse was handed to are believed, and only while the simulation runs.

Repeats. The same word again is answered as the first time and changes nothing: a lost answer is asked
for again, and nothing is counted, begun or ended twice.
"""

from __future__ import annotations

from typing import assert_never

import msgspec

from interlock.engine.unit_of_work import Decision, journalled_once
from interlock.lifecycles import simulation
from interlock.lifecycles.simulation import SIMULATION
from interlock.machine import Event
from interlock.store import records
from interlock.store.records import Commit, Note
from interlock.systems.simulations.aggregate import SimulationAggregate, told_of
from interlock.wire.simulations import (
    AnySimulationWord,
    Beat,
    Begin,
    Completed,
    Failed,
    Paused,
    SimulationOrders,
)


class Speaker(msgspec.Struct, frozen=True):
    """Who says it, as its lease has it."""

    run_id: str
    execution: int
    attempt: int
    worker_id: str


def hear(
    draft: SimulationAggregate, speaker: Speaker, word: AnySimulationWord, mark: str, beat_every_s: float
) -> Decision[SimulationOrders]:
    """What a word does to a simulation, and what its worker is answered."""
    commit: Commit | None = None
    why = _superseded(draft, speaker)
    if not why:
        match word:
            case Begin():
                why, commit = _begin(draft, speaker, mark)
            case Beat():
                why, commit = _beat(draft, speaker, word, mark)
            case Paused() | Completed() | Failed():
                why, commit = _end(draft, speaker, word, mark)
            case _ as never:
                assert_never(never)
    if why and commit is None:
        note = Note(refusal=f"{_name(word)}: {why}", actor=speaker.worker_id, request_id=mark)
        refused = records.Refused(kind=SIMULATION.name, id=draft.id, note=note)
        kind = f"{speaker.execution}.{speaker.attempt} {_name(word)} {draft.state}"
        commit = journalled_once(refused, kind)
    return Decision(orders_of(draft, why, beat_every_s), commit)


def orders_of(draft: SimulationAggregate, why: str, beat_every_s: float) -> SimulationOrders:
    """What the worker shall do, from where the simulation stands."""
    data = draft.body.data
    known = draft.pulse.total_steps
    return SimulationOrders(
        run_id=draft.id,
        status=draft.state,
        go_on=not why,
        reason=why,
        pause=data.pause_requested or data.cancel_requested,
        step=draft.pulse.saved_step,
        total_steps=known if known is not None else draft.body.spec.total_steps,
        checkpoint=draft.pulse.checkpoint,
        danger_count=draft.pulse.dangers,
        sampled=draft.pulse.samples.last_step,
        beat_every_s=beat_every_s,
    )


def _superseded(draft: SimulationAggregate, speaker: Speaker) -> str:
    """Why nothing that this execution says counts any more."""
    current = draft.body.execution.number
    if speaker.execution != current:
        return f"it was given out again: execution {current} counts, and this is {speaker.execution}"
    return ""


def _begin(draft: SimulationAggregate, speaker: Speaker, mark: str) -> tuple[str, Commit | None]:
    """Move it to running, or say why it must not be executed."""
    execution, running = draft.body.execution, draft.state is simulation.RUNNING
    if running and told_of(draft.pulse, speaker.execution, speaker.attempt, speaker.worker_id):
        return "", None  # the answer was lost
    if running and speaker.attempt > execution.attempt:
        # A later attempt has the lease, so the earlier one has lost it; word of that is under way.
        draft.interrupt(simulation.Interrupt(at=draft.now, reason="given back"))
    if draft.state is simulation.INTERRUPTED and draft.body.data.cancel_requested:
        draft.must(simulation.Cancel(at=draft.now))
        return "it was cancelled", draft.commit(mark=mark, actor="simulator")
    if draft.body.execution.held:
        commit = draft.commit(mark=mark, actor="simulator") if running else None
        return f"it stands until it is resumed: {draft.body.trouble}", commit
    begins = simulation.Start if draft.state is simulation.PENDING else simulation.Resume
    if refused := draft.send(begins(at=draft.now, worker_id=speaker.worker_id)):
        return refused.sentence, None
    draft.begun(speaker.attempt)
    return "", draft.commit(mark=mark, actor=speaker.worker_id)


def _beat(draft: SimulationAggregate, speaker: Speaker, word: Beat, mark: str) -> tuple[str, Commit | None]:
    if not told_of(draft.pulse, speaker.execution, speaker.attempt, speaker.worker_id):
        return "another attempt executes it", None
    said = simulation.Heartbeat(at=draft.now, worker_id=speaker.worker_id, step=word.step)
    if refused := draft.send(said):
        return refused.sentence, None
    draft.beat(word)
    return "", draft.beat_commit(mark=mark, actor=speaker.worker_id)


def _end(
    draft: SimulationAggregate, speaker: Speaker, word: Paused | Completed | Failed, mark: str
) -> tuple[str, Commit | None]:
    """The execution ends, well or badly."""
    saying = f"{speaker.execution}.{speaker.attempt}.{_name(word)}"
    if draft.body.said == saying:
        return "", None
    if not told_of(draft.pulse, speaker.execution, speaker.attempt, speaker.worker_id):
        return "another attempt executes it", None
    draft.note(word)
    if refused := draft.send(_ending(draft, speaker.worker_id, word)):
        return refused.sentence, None
    draft.body.said = saying
    if isinstance(word, Completed):
        draft.body.result = word.result
    return "", draft.commit(mark=mark, actor=speaker.worker_id)


def _ending(draft: SimulationAggregate, worker_id: str, word: Paused | Completed | Failed) -> Event:
    match word:
        case Paused(step=step):
            return simulation.Pause(at=draft.now, worker_id=worker_id, step=step)
        case Completed(step=step):
            return simulation.Complete(at=draft.now, worker_id=worker_id, step=step)
        case Failed(error=error):
            return simulation.Fail(at=draft.now, worker_id=worker_id, error=error)


def _name(word: AnySimulationWord) -> str:
    return str(type(word).__struct_config__.tag)
