"""What the record of a simulation keeps, and how it is shown together with its pulse."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from interlock.lifecycles import simulation
from interlock.lifecycles.simulation import Simulation
from interlock.store.records import Record
from interlock.systems.simulations.pulse import PulseBody
from interlock.wire.simulations import SimulationMetrics, SimulationSpec, SimulationView


class Execution(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who executes it, or is about to: told apart by number, and within a job by attempt."""

    number: int = 0
    job_id: str = ""
    attempt: int = 0
    """The newest attempt at the job that has begun, or was lost before it could."""
    awaited: bool = False
    """Its job waits for a worker; resuming now would make a second execution."""
    queue: str = ""
    """Where its job is, if that is not the queue of the spec."""
    held: bool = False
    """Interrupted with a pause pending, or by a silence that `losses` does not cover: no attempt goes on
    with it, and only a resume makes another execution."""


class SimulationBody(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Everything about a simulation that is not a column of its record."""

    spec: SimulationSpec
    data: Simulation
    execution: Execution = Execution()
    danger_count: int = 0
    """As its pulse had it at the last transition."""
    said: str = ""
    """The last word of the attempt that ended an execution: the same again is a repeat."""
    trouble: str = ""
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_ENCODER = msgspec.json.Encoder()
_BODIES = msgspec.json.Decoder(SimulationBody)
_PULSES = msgspec.json.Decoder(PulseBody)


def encode(body: SimulationBody | PulseBody) -> bytes:
    """The body as its record keeps it."""
    return _ENCODER.encode(body)


def decode_body(record: Record) -> SimulationBody:
    """A working copy, as far as the simulation's own record knows."""
    return _BODIES.decode(record.body)


def decode_pulse(record: Record | None) -> PulseBody:
    """A working copy; one that says nothing where there is no pulse."""
    return PulseBody() if record is None else _PULSES.decode(record.body)


def joined(data: Simulation, pulse: PulseBody) -> Simulation:
    """What is known of a simulation: its pulse has been heard later than its record was written."""
    return msgspec.structs.replace(
        data,
        current_step=max(data.current_step, pulse.step),
        last_heartbeat=pulse.at if pulse.at is not None else data.last_heartbeat,
    )


def metrics_of(record: Record, pulse_record: Record | None) -> SimulationMetrics:
    """Return the metrics of a simulation as columns."""
    samples = decode_pulse(pulse_record).samples
    names = dict.fromkeys(name for sample in samples.kept for name in sample.values)
    return SimulationMetrics(
        run_id=record.id,
        status=record.state,
        steps=tuple(sample.step for sample in samples.kept),
        series={name: tuple(sample.values.get(name) for sample in samples.kept) for name in names},
        stride=samples.stride,
    )


def view_of(record: Record, pulse_record: Record | None, now: datetime, stale_s: float) -> SimulationView:
    """The simulation as it stands."""
    body, pulse = decode_body(record), decode_pulse(pulse_record)
    spec, data, execution = body.spec, joined(body.data, pulse), body.execution
    heard = data.last_heartbeat or data.started_at
    silent = heard is not None and now >= heard + timedelta(seconds=stale_s)
    return SimulationView(
        run_id=record.id,
        status=record.state,
        version=record.version,
        created_at=data.created_at,
        scenario_path=spec.scenario_path,
        scenario_name=spec.scenario_name,
        current_step=data.current_step,
        total_steps=pulse.total_steps if pulse.total_steps is not None else spec.total_steps,
        started_at=data.started_at,
        paused_at=data.paused_at,
        completed_at=data.completed_at,
        worker_id=data.worker_id,
        last_heartbeat=data.last_heartbeat,
        stale=record.state == simulation.RUNNING and silent,
        priority=spec.priority,
        error=data.error,
        danger_count=max(body.danger_count, pulse.dangers),
        pause_requested=data.pause_requested,
        cancel_requested=data.cancel_requested,
        resuming=execution.awaited and record.state in (simulation.PAUSED, simulation.INTERRUPTED),
        saved_step=pulse.saved_step,
        saved_at=pulse.saved_at,
        saved_bytes=memoryview(pulse.checkpoint).nbytes if isinstance(pulse.checkpoint, msgspec.Raw) else 0,
        execution=execution.number,
        job_id=execution.job_id,
        task=spec.task,
        queue=execution.queue or spec.queue,
        labels=spec.labels,
        trouble=body.trouble,
        input=spec.input,
        result=body.result,
    )
