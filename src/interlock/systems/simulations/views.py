"""Simulations for others: objects for tools that read Redis, and news from the journal for people."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from interlock.lifecycles import simulation
from interlock.lifecycles.durations import DEFAULTS
from interlock.lifecycles.simulation import SIMULATION
from interlock.store.catalogue import Shown
from interlock.store.records import Change, Entry
from interlock.systems.simulations import body
from interlock.systems.simulations.body import BEATING, PULSE, PulseBody, SimulationBody
from interlock.wire.simulations import SimulationNews

_ENCODER = msgspec.json.Encoder()
_BODIES = msgspec.json.Decoder(SimulationBody)
_PULSES = msgspec.json.Decoder(PulseBody)


def state_object(change: Change) -> bytes:
    """Return the fields of a run, as documented."""
    body = _BODIES.decode(change.body)
    spec, data = body.spec, body.data
    return _ENCODER.encode(
        {
            "run_id": change.id,
            "status": change.state,
            "scenario_path": spec.scenario_path,
            "scenario_name": spec.scenario_name,
            "current_step": data.current_step,
            "total_steps": spec.total_steps,
            "created_at": data.created_at,
            "started_at": data.started_at,
            "paused_at": data.paused_at,
            "completed_at": data.completed_at,
            "worker_id": data.worker_id,
            "last_heartbeat": data.last_heartbeat,
            "priority": spec.priority,
            "error": data.error,
            "danger_count": body.danger_count,
            "version": change.expected + 1,
        }
    )


def heartbeat(change: Change) -> bytes | None:
    """Return the time of the last heartbeat, while there is a worker."""
    if change.state != BEATING:
        return None
    at = _PULSES.decode(change.body).at
    return None if at is None else at.isoformat().encode()


def heartbeat_fields(change: Change) -> dict[str, bytes]:
    """Return the fields of the state object that a pulse updates."""
    pulse = _PULSES.decode(change.body)
    fields: dict[str, object] = {"current_step": pulse.step, "danger_count": pulse.dangers}
    if pulse.at is not None:
        fields["last_heartbeat"] = pulse.at
    if pulse.total_steps is not None:
        fields["total_steps"] = pulse.total_steps
    return {name: _ENCODER.encode(value) for name, value in fields.items()}


STATE_KEY = "run:{id}:state"
SHOWN = {
    SIMULATION.name: Shown(
        key=STATE_KEY,
        value=state_object,
        index="runs:index",
        keeps=("current_step", "danger_count", "last_heartbeat", "total_steps"),
    ),
    PULSE.name: Shown(
        key="run:{id}:heartbeat",
        value=heartbeat,
        ttl_s=DEFAULTS.simulation_stale_s,
        into=STATE_KEY,
        fields=heartbeat_fields,
    ),
}


KINDS = frozenset({SIMULATION.name, PULSE.name})

_REQUESTED = {
    simulation.RequestPause.name: "pause_requested",
    simulation.Cancel.name: "cancel_requested",
}
_BEGUN = {simulation.Start.name: "started", simulation.Resume.name: "resumed"}


def news_of(entry: Entry) -> Iterator[SimulationNews]:
    """Yield the news of an entry for people, in order."""
    note = entry.note
    if note.refusal:
        return
    if entry.kind == PULSE.name:
        dangers = note.reason.split("\n") if any(s.event == body.danger.name for s in note.steps) else []
        for text in dangers:
            yield SimulationNews(event="danger", run_id=entry.id, at=entry.at, text=text, actor=note.actor)
        return
    if not note.steps and entry.version > 1 and note.reason:
        yield SimulationNews(
            event="resume_requested", run_id=entry.id, at=entry.at, text=note.reason, actor=note.actor
        )
    if entry.version == 1:
        yield SimulationNews(event="created", run_id=entry.id, at=entry.at, actor=note.actor)
    for step in note.steps:
        name = _BEGUN.get(step.event, step.target) if step.moves else _REQUESTED.get(step.event, "")
        if name:
            yield SimulationNews(event=name, run_id=entry.id, at=entry.at, text=note.reason, actor=note.actor)
