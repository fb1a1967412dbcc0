"""The records of a simulation: its own, and its pulse, which has its worker and progress.

And the columns and texts by which simulations are found.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from interlock.lifecycles import simulation
from interlock.lifecycles.durations import deadline
from interlock.lifecycles.owners import Owner
from interlock.lifecycles.simulation import SIMULATION, SimulationData
from interlock.machine import (
    STAY,
    Event,
    Machine,
    command,
    consequence,
    end,
    ignore,
    message,
    on,
    refuse,
    state,
    timer,
)
from interlock.store.contract import Store
from interlock.store.records import Key, Query, Record
from interlock.systems.runs.body import label
from interlock.wire.filter_language import LOOKED_AT
from interlock.wire.simulations import (
    Samples,
    SimulationFilter,
    SimulationMetrics,
    SimulationSpec,
    SimulationView,
)


class PulseState(StrEnum):
    """The states of a pulse, which expects heartbeats or not."""

    STILL = "still"
    BEATING = "beating"
    OVER = "over"


STILL, BEATING, OVER = PulseState.STILL, PulseState.BEATING, PulseState.OVER

take: Event = consequence("take", "A worker executes the simulation.", by=Owner.SIMULATOR)
rest: Event = consequence("rest", "No worker executes the simulation.", by=Owner.SIMULATOR)
finish: Event = command("finish", "The simulation has ended.", by=Owner.SIMULATOR)
beat: Event = message("beat", "Its worker is alive.", by=Owner.WORKER)
danger: Event = message("danger", "Its worker reports a danger.", by=Owner.WORKER)
fall_silent: Event = timer("fall_silent", "No heartbeat came in time.", by=Owner.CLOCK)

_SILENCE = deadline(fall_silent, "simulation_silence_s", since="the last heartbeat, or the start")

# fmt: off
PULSE = Machine[PulseState, None](
    "pulse",
    "The worker of a simulation, its last heartbeat, and the progress.",
    initial=STILL,
    spine=(STILL, BEATING, OVER),
    stop=(finish,),
    states=(
        state(STILL, "No worker executes it, and no heartbeat is expected.", turn=Owner.SIMULATOR),
        state(BEATING, "Its worker sends regular heartbeats.", turn=Owner.SIMULATOR, within=_SILENCE),
        end(OVER, "The simulation has ended."),
    ),
    rows=(
        on(take, STILL, BEATING, owner=Owner.SIMULATOR,
           why="Heartbeats of this worker are expected from now on."),
        on(beat, BEATING, STAY, owner=Owner.SIMULATOR, arms=_SILENCE, why="A worker is executing it."),
        on(danger, BEATING, STAY, owner=Owner.SIMULATOR, why="It is counted and published."),
        on(rest, BEATING, STILL, owner=Owner.SIMULATOR, why="It was paused or interrupted."),
        on(fall_silent, BEATING, STILL, owner=Owner.SIMULATOR, why="Its worker counts as dead."),
        on(finish, (STILL, BEATING), OVER, owner=Owner.SIMULATOR, why="No further heartbeat is expected."),
        refuse(take, BEATING, why="it belongs to another worker"),
        refuse(take, OVER, why="it has ended"),
        *(refuse(each, STILL, why="no worker executes it") for each in (beat, danger)),
        *(refuse(each, OVER, why="it has ended") for each in (beat, danger)),
        ignore(rest, (STILL, OVER), why="no heartbeat is expected"),
        ignore(fall_silent, (STILL, OVER), why="no heartbeat is expected"),
        ignore(finish, OVER, why="it has ended"),
    ),
)
# fmt: on


class PulseBody(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The body of a pulse's record."""

    worker_id: str = ""
    """The worker that sends heartbeats."""
    execution: int = 0
    attempt: int = 0
    at: datetime | None = None
    """Time of the last heartbeat."""
    step: int = 0
    total_steps: int | None = None
    checkpoint: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    saved_step: int = 0
    """The step after which the checkpoint was saved."""
    saved_at: datetime | None = None
    dangers: int = 0
    samples: Samples = Samples()
    """Metrics over the steps, in a bounded number."""


class Execution(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The current or next execution: identified by number, and within a job by attempt."""

    number: int = 0
    job_id: str = ""
    attempt: int = 0
    """The newest attempt that has begun, or was lost before."""
    awaited: bool = False
    """Whether its job waits for a worker; a resume now would make a second execution."""
    queue: str = ""
    """The queue of its job, if it is not that of the spec."""
    held: bool = False
    """Whether it was interrupted with a pause pending, or by a silence that `losses` does not cover: no
    attempt continues it, and only a resume makes another execution.
    """


class SimulationBody(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The body of a simulation's record."""

    spec: SimulationSpec
    data: SimulationData
    execution: Execution = Execution()
    danger_count: int = 0
    """The number of warnings at the last transition."""
    said: str = ""
    """The last message of the attempt that ended an execution: the same again is a repeat."""
    trouble: str = ""
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_ENCODER = msgspec.json.Encoder()
_BODIES = msgspec.json.Decoder(SimulationBody)
_PULSES = msgspec.json.Decoder(PulseBody)


def encode(body: SimulationBody | PulseBody) -> bytes:
    """Return the body, encoded for the record."""
    return _ENCODER.encode(body)


def decode_body(record: Record) -> SimulationBody:
    """Return a decoded copy of the simulation's record."""
    return _BODIES.decode(record.body)


def decode_pulse(record: Record | None) -> PulseBody:
    """Return a decoded copy; an empty one without a pulse."""
    return PulseBody() if record is None else _PULSES.decode(record.body)


def joined(data: SimulationData, pulse: PulseBody) -> SimulationData:
    """Return the data of a simulation, with the newer values of its pulse."""
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
    """Return the view of a simulation."""
    body, pulse = decode_body(record), decode_pulse(pulse_record)
    spec, data, execution = body.spec, joined(body.data, pulse), body.execution
    last_beat = data.last_heartbeat or data.started_at
    silent = last_beat is not None and now >= last_beat + timedelta(seconds=stale_s)
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


PAGE = 200
MAX_SCANNED = 10_000


class FoundSimulations(msgspec.Struct, frozen=True):
    """Simulations with their pulses, newest first."""

    pairs: list[tuple[Record, Record | None]]
    cursor: str = ""
    """Start of the next page; empty at the end."""
    stopped_early: bool = False
    """The search limit was reached: simulations after the cursor have not been examined."""


def labels_of(spec: SimulationSpec) -> tuple[str, ...]:
    """Return the labels by which a simulation is found."""
    return (label("priority", spec.priority),)


def query_of(wanted: SimulationFilter, cursor: str, limit: int) -> Query:
    """Return the filter as a query, as far as a store can evaluate it."""
    return Query(
        kind=SIMULATION.name,
        states=tuple(str(SIMULATION.state(name)) for name in wanted.statuses),
        labels=(label("priority", wanted.priority),) if wanted.priority else (),
        cursor=cursor,
        limit=limit,
        within=LOOKED_AT,
    )


async def found(store: Store, wanted: SimulationFilter, *, cursor: str, limit: int) -> FoundSimulations:
    """Return up to `limit` matching simulations."""
    records: list[Record] = []
    scanned, text = 0, wanted.text.casefold()
    while True:
        room = limit - len(records)
        size = PAGE if text else room
        page = await store.find(query_of(wanted, cursor, size))
        kept = [place for place, each in enumerate(page.records, 1) if _contains(each, text)]
        records += [page.records[place - 1] for place in kept[:room]]
        scanned, following = scanned + len(page.records), page.cursor
        if len(kept) > room or (len(kept) == room and kept[-1] < len(page.records)):
            # The next page begins right after the last one shown.
            following = (await store.find(query_of(wanted, cursor, kept[room - 1]))).cursor
        cursor = following
        early = scanned >= MAX_SCANNED or len(page.records) < size
        if not cursor or len(records) >= limit or early:
            return FoundSimulations(await with_pulses(store, records), cursor, bool(cursor) and early)


async def with_pulses(store: Store, records: Sequence[Record]) -> list[tuple[Record, Record | None]]:
    """Return each record with its pulse."""
    pulses = await store.load([Key(PULSE.name, each.id) for each in records]) if records else []
    return list(zip(records, pulses, strict=True))


def _contains(record: Record, text: str) -> bool:
    if not text:
        return True
    spec = decode_body(record).spec
    return any(
        text in each.casefold() for each in (record.id, spec.task, spec.scenario_name, spec.scenario_path)
    )
