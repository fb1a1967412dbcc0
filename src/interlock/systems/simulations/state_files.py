"""Runs from state files: directories with a `state.json` each become simulations.

A snapshot describes a run with the fields of a simulation. It is imported through the table, as a sequence of
events: so the result is a legal history with its times. A run that was running has lost its worker, and is
interrupted. Its `state` (or `checkpoint`), if it has one, is restored by a resume at its step; otherwise a
resume starts from the beginning, and this is reported. An existing run is not changed, so an import can be
repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec

from interlock.engine.unit_of_work import Decision, Engine
from interlock.errors import CannotLoad, InterlockError
from interlock.lifecycles import simulation
from interlock.lifecycles.durations import Timed
from interlock.lifecycles.simulation import SIMULATION
from interlock.store.records import Key, Record, Repeated
from interlock.systems.simulations.aggregate import SimulationAggregate
from interlock.systems.simulations.settings import SimulationSettings
from interlock.systems.simulations.validation import check, check_value
from interlock.wire.simulations import SimulationSpec

STATE = "state.json"
LARGEST = 1_048_576
WITHOUT_STATE = "its snapshot has no state, so a resume begins with step 1"


StoredTime: TypeAlias = datetime | int | float | None
TIMES = ("created_at", "started_at", "paused_at", "completed_at", "last_heartbeat")


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A `state.json`; other fields are ignored."""

    status: str
    run_id: str = ""
    scenario_path: str = ""
    scenario_name: str = ""
    current_step: Annotated[int, msgspec.Meta(ge=0)] = 0
    total_steps: int | None = None
    created_at: StoredTime = None
    started_at: StoredTime = None
    paused_at: StoredTime = None
    completed_at: StoredTime = None
    last_heartbeat: StoredTime = None
    worker_id: str | None = None
    priority: str = "normal"
    error: str | None = None
    danger_count: int = 0
    state: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    checkpoint: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET

    @property
    def saved(self) -> msgspec.Raw | msgspec.UnsetType:
        """The state for the next step."""
        return self.checkpoint if isinstance(self.checkpoint, msgspec.Raw) else self.state

    @property
    def begins_again(self) -> bool:
        """Whether a resume would start from the beginning."""
        stands = SIMULATION.state(self.status) not in (simulation.PENDING, *simulation.ENDED)
        return stands and self.current_step > 0 and not isinstance(self.saved, msgspec.Raw)


class ImportResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an import."""

    made: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    """Existing runs."""
    without_state: tuple[str, ...] = ()
    """Imported runs that a resume starts from the beginning, because there is no state to restore."""
    refused: dict[str, str] = {}
    """Reasons why files could not be read, by path."""


async def import_directory(
    engine: Engine, settings: SimulationSettings, folder: Path, *, actor: str = "", task: str = ""
) -> ImportResult:
    """Import every run below a folder, the oldest first.

    With a task they can be resumed.
    """
    snapshots, refused = await asyncio.to_thread(read_all, folder)
    made: list[Snapshot] = []
    known: list[str] = []
    for path, snapshot in snapshots:
        try:
            new = await _bring_in(engine, settings, snapshot, actor, task)
        except InterlockError as error:
            refused[str(path)] = error.sentence
            continue
        if new:
            made.append(snapshot)
        else:
            known.append(snapshot.run_id)
    return ImportResult(
        made=tuple(each.run_id for each in made),
        known=tuple(known),
        without_state=tuple(each.run_id for each in made if each.begins_again),
        refused=refused,
    )


def read_all(folder: Path) -> tuple[list[tuple[Path, Snapshot]], dict[str, str]]:
    """Return every snapshot below a folder, the oldest first.

    The second result names why other files cannot be read.
    """
    if not folder.is_dir():
        raise CannotLoad(
            f"There is no folder {folder}.",
            todo=f"Name the folder whose folders have a {STATE} each.",
            facts={"path": str(folder)},
        )
    found: list[tuple[Path, Snapshot]] = []
    refused: dict[str, str] = {}
    for path in sorted(folder.rglob(STATE)):
        try:
            found.append((path, _read(path)))
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            refused[str(path)] = str(error)
    found.sort(key=lambda pair: (_created(pair[1]), pair[1].run_id))
    return found, refused


def life_of(snapshot: Snapshot, now: datetime) -> Iterator[Timed]:
    """Yield the events that lead to a snapshot."""
    status, step = SIMULATION.state(snapshot.status), snapshot.current_step
    created, who = _created(snapshot), snapshot.worker_id or "before the import"
    started = _aware(snapshot.started_at) or created
    ended = _aware(snapshot.completed_at) or now
    if status is simulation.CANCELLED and snapshot.started_at is None:
        yield simulation.Cancel(at=ended)
    if status is simulation.PENDING or (status is simulation.CANCELLED and snapshot.started_at is None):
        return
    yield simulation.Start(at=started, worker_id=who)
    yield simulation.Heartbeat(at=started, worker_id=who, step=step)
    match status:
        case simulation.SimulationState.COMPLETED:
            yield simulation.Complete(at=ended, worker_id=who, step=step)
        case simulation.SimulationState.FAILED:
            yield simulation.Fail(at=ended, worker_id=who, error=snapshot.error or "no reason was kept")
        case simulation.SimulationState.PAUSED:
            paused = _aware(snapshot.paused_at) or now
            yield simulation.RequestPause(at=paused)
            yield simulation.Pause(at=paused, worker_id=who, step=step)
        case simulation.SimulationState.CANCELLED:
            yield simulation.Cancel(at=ended)
            yield simulation.Pause(at=ended, worker_id=who, step=step)
        case _:
            again = f"; {WITHOUT_STATE}" if snapshot.begins_again else ""
            yield simulation.Interrupt(at=now, reason=f"it was running when it was imported{again}")


async def _bring_in(
    engine: Engine, settings: SimulationSettings, snapshot: Snapshot, actor: str, task: str
) -> bool:
    spec = SimulationSpec(
        task=task,
        run_id=snapshot.run_id,
        scenario_path=snapshot.scenario_path,
        scenario_name=snapshot.scenario_name,
        total_steps=snapshot.total_steps,
        priority=snapshot.priority,
    )
    check(spec, settings)
    check_value("state", snapshot.saved, settings.jobs.max_checkpoints_bytes)

    def decide(present: Sequence[Record | None], now: datetime) -> Decision[bool]:
        if present[0] is not None:
            return Decision(False)
        draft = SimulationAggregate.new(snapshot.run_id, spec, _created(snapshot), settings)
        for event in life_of(snapshot, now):
            draft.now = event.at  # consequences of an event, such as a cancel after a pause, have its time
            draft.must(event)
        if snapshot.begins_again:
            draft.body.trouble = draft.body.data.error or WITHOUT_STATE
        draft.pulse.dangers = draft.body.danger_count = snapshot.danger_count
        draft.pulse.step = snapshot.current_step
        draft.pulse.at = _aware(snapshot.last_heartbeat) or draft.pulse.at
        if isinstance(snapshot.saved, msgspec.Raw):
            draft.pulse.checkpoint, draft.pulse.saved_step = snapshot.saved, snapshot.current_step
        return Decision(True, draft.commit(commit_id=engine.commit_id(), actor=actor, reason="imported"))

    applied = await engine.apply([Key(SIMULATION.name, snapshot.run_id)], decide)
    return not isinstance(applied, Repeated) and applied.answer


def _read(path: Path) -> Snapshot:
    if path.stat().st_size > LARGEST:
        raise ValueError(f"it has more than {LARGEST} bytes")
    snapshot = msgspec.json.decode(path.read_bytes(), type=Snapshot)
    for name in TIMES:
        try:
            _aware(getattr(snapshot, name))
        except (ValueError, OverflowError, OSError):
            raise ValueError(f"{name} is not a time") from None
    if not snapshot.created_at and not snapshot.started_at:
        written = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        snapshot = msgspec.structs.replace(snapshot, created_at=written)
    return msgspec.structs.replace(snapshot, run_id=snapshot.run_id or path.parent.name)


def _created(snapshot: Snapshot) -> datetime:
    created = _aware(snapshot.created_at) or _aware(snapshot.started_at)
    assert created is not None
    return created


def _aware(at: StoredTime) -> datetime | None:
    """Return a time in UTC.

    Old snapshots have times without a zone, or seconds since 1970.
    """
    if isinstance(at, int | float):
        return datetime.fromtimestamp(at, UTC)
    return at.replace(tzinfo=UTC) if at is not None and at.tzinfo is None else at
