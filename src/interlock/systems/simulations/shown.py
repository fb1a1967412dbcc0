"""Simulations as other tools read them from Redis: a state object, a heartbeat and an index.

    run:ID:state       JSON with the fields of a run: status, steps, times, worker, error, version …
    run:ID:heartbeat   when its worker was heard last; gone 30 s after that, or when nobody executes it
    runs:index         the ids by the time of their creation

The keys begin with `{interlock}:`, or with what `?shown=apart` in the URL of the store says. They are
written in the commit that changes the simulation, and never read back. A heartbeat replaces the fields of
the state object that it is about, in its own commit: step, time, total and dangers.
"""

from __future__ import annotations

import msgspec

from interlock.lifecycles.durations import DEFAULTS
from interlock.lifecycles.simulation import SIMULATION
from interlock.store.catalogue import Shown
from interlock.store.records import Change
from interlock.systems.simulations.body import SimulationBody
from interlock.systems.simulations.pulse import BEATING, PULSE, PulseBody

_ENCODER = msgspec.json.Encoder()
_BODIES = msgspec.json.Decoder(SimulationBody)
_PULSES = msgspec.json.Decoder(PulseBody)


def state_object(change: Change) -> bytes:
    """The fields of a run, as its document names them."""
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
    """When its worker was heard last, while it has one."""
    if change.state != BEATING:
        return None
    at = _PULSES.decode(change.body).at
    return None if at is None else at.isoformat().encode()


def beaten(change: Change) -> dict[str, bytes]:
    """Return the fields of the state object that a pulse knows better than the record of its run."""
    pulse = _PULSES.decode(change.body)
    told: dict[str, object] = {"current_step": pulse.step, "danger_count": pulse.dangers}
    if pulse.at is not None:
        told["last_heartbeat"] = pulse.at
    if pulse.total_steps is not None:
        told["total_steps"] = pulse.total_steps
    return {name: _ENCODER.encode(value) for name, value in told.items()}


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
        fields=beaten,
    ),
}
