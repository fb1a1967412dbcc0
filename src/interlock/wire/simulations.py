"""Simulations: what is submitted, how one is shown, its metrics, and messages of worker and manager.

A worker reports under the lease of the job that it executes, so it names neither the simulation nor the
execution: both follow from the lease. Every message may be sent again when its answer was lost.

Samples of metrics are put into buckets of `stride` steps, and of each bucket the latest values are kept.
When there are too many buckets, each two become one. So the curves of a long simulation are equally dense
from the first step to the last, and the last sample is always there.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from math import isfinite
from typing import TypeAlias

import msgspec

from interlock.wire.runner import Secretive
from interlock.wire.views import View

MOST_SAMPLES = 400
MOST_METRICS = 8
MOST_NAME = 64


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """Numbers by their names, as they were in one step."""

    step: int
    values: dict[str, float]


class Samples(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Samples in the order of their steps."""

    stride: int = 1
    kept: tuple[Sample, ...] = ()

    @property
    def last_step(self) -> int:
        """The step of the latest sample; 0 while there is none."""
        return self.kept[-1].step if self.kept else 0

    def added(self, fresh: Iterable[Sample], most: int = MOST_SAMPLES) -> Samples:
        """Return these and later ones; what is not after the last is known already.

        There are at most so many metrics, the first ones: what is recorded under other names is left out.
        """
        kept, stride, last = list(self.kept), self.stride, self.last_step
        names = dict.fromkeys(name for sample in kept for name in sample.values)
        for sample in fresh:
            if sample.step <= last and kept:
                continue
            last = sample.step
            for name in sample.values:
                if len(names) < MOST_METRICS:
                    names.setdefault(name)
            known = {name: value for name, value in sample.values.items() if name in names}
            _put(kept, Sample(sample.step, known), stride)
            while len(kept) > most:
                stride *= 2
                kept = _bucketed(kept, stride)
        return Samples(stride=stride, kept=tuple(kept))

    def until(self, step: int) -> Samples:
        """Return these without what was measured after a step, which is taken again."""
        return Samples(stride=self.stride, kept=tuple(each for each in self.kept if each.step <= step))


def fault_of(samples: Iterable[Sample], known: Iterable[str] = ()) -> str:
    """Return what is wrong with samples that somebody sends; nothing if they can be kept."""
    names = set(known)
    for sample in samples:
        names |= sample.values.keys()
        if any(not 0 < len(name) <= MOST_NAME for name in sample.values):
            return f"the name of a metric has 1 to {MOST_NAME} characters"
        if wrong := [name for name, value in sample.values.items() if not isfinite(value)]:
            return f"{wrong[0]} is not a finite number"
    if len(names) > MOST_METRICS:
        return f"there are {len(names)} metrics, and {MOST_METRICS} at most are kept"
    return ""


def _put(kept: list[Sample], sample: Sample, stride: int) -> None:
    if kept and kept[-1].step // stride == sample.step // stride:
        sample = Sample(sample.step, {**kept.pop().values, **sample.values})
    kept.append(sample)


def _bucketed(samples: list[Sample], stride: int) -> list[Sample]:
    kept: list[Sample] = []
    for sample in samples:
        _put(kept, sample, stride)
    return kept


PRIORITIES = {"low": -10, "normal": 0, "high": 10}
"""What a priority is worth in the queue: each step is a head start of a minute."""


class SimulationSpec(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A simulation that somebody wants."""

    task: str = ""
    """The name of the `@simulation` that workers know; none for one that is driven by hand."""
    input: msgspec.Raw = msgspec.Raw(b"{}")
    """JSON: an object of arguments by name."""
    run_id: str = ""
    """A name of one's own; one is drawn where there is none."""
    scenario_path: str = ""
    scenario_name: str = ""
    total_steps: int | None = None
    """How many steps there will be, where that is known."""
    priority: str = "normal"
    queue: str = "default"
    labels: tuple[str, ...] = ()
    """What a worker must have to be given it."""
    losses: int = 0
    """How often it goes on by itself after its worker was lost; else somebody has to resume it."""


class SimulationView(View, frozen=True, kw_only=True, omit_defaults=True):
    """A simulation as it is shown everywhere."""

    run_id: str
    status: str
    version: int
    created_at: datetime
    scenario_path: str = ""
    scenario_name: str = ""
    current_step: int = 0
    total_steps: int | None = None
    started_at: datetime | None = None
    paused_at: datetime | None = None
    completed_at: datetime | None = None
    worker_id: str | None = None
    last_heartbeat: datetime | None = None
    stale: bool = False
    """It runs, and nothing was heard from its worker for a while."""
    priority: str = "normal"
    error: str | None = None
    danger_count: int = 0
    pause_requested: bool = False
    cancel_requested: bool = False
    resuming: bool = False
    """It stands, and a worker is being waited for that goes on with it."""
    saved_step: int = 0
    """The step after which it would go on elsewhere."""
    saved_at: datetime | None = None
    """When that was saved."""
    saved_bytes: int = 0
    """How large it is."""
    execution: int = 0
    """How often it was given to workers, by creating and by resuming it."""
    job_id: str = ""
    """The job that executes it, or did last."""
    task: str = ""
    queue: str = "default"
    labels: tuple[str, ...] = ()
    trouble: str = ""
    """Why the last execution ended before its time."""
    input: msgspec.Raw = msgspec.Raw(b"{}")
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class SimulationMetrics(View, frozen=True, kw_only=True, omit_defaults=True):
    """The metrics of a simulation over its steps; of a long one every so many steps."""

    run_id: str
    status: str
    steps: tuple[int, ...] = ()
    series: dict[str, tuple[float | None, ...]] = msgspec.field(default_factory=dict)
    """By name, a value for each of the steps; null where none was recorded."""
    stride: int = 1
    """One sample stands for so many steps: the latest of them."""


class SimulationFilter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which simulations somebody wants to see; empty parts do not filter."""

    statuses: tuple[str, ...] = ()
    priority: str = ""
    text: str = ""
    """Part of its id, its task, or the name or path of its scenario, in any case."""


class Danger(msgspec.Struct, frozen=True, array_like=True):
    """Something that a simulation warns of. They are numbered, so that none is counted twice."""

    number: int
    step: int
    text: str


class SimulationWord(msgspec.Struct, frozen=True, kw_only=True, tag_field="word", omit_defaults=True):
    """Base of what a worker says about the simulation that it executes."""

    step: int = 0
    """The last step that was completed."""
    total_steps: int | None = None
    checkpoint: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """What the next step needs to know, where that was saved after this very step."""
    dangers: tuple[Danger, ...] = ()
    samples: tuple[Sample, ...] = ()
    """Metrics of steps that were not heard of yet."""


class Begin(SimulationWord, frozen=True, kw_only=True, tag="begin"):
    """It is about to execute, and does not when this is refused."""


class Beat(SimulationWord, frozen=True, kw_only=True, tag="beat"):
    """It is alive, and has got this far."""


class Paused(SimulationWord, frozen=True, kw_only=True, tag="paused"):
    """It has stopped between two steps, as asked."""


class Completed(SimulationWord, frozen=True, kw_only=True, tag="completed"):
    """It has done the last step."""

    result: msgspec.Raw = msgspec.Raw(b"null")


class Failed(SimulationWord, frozen=True, kw_only=True, tag="failed"):
    """A step has failed."""

    error: str


AnySimulationWord: TypeAlias = Begin | Beat | Paused | Completed | Failed


class SaidOfSimulation(Secretive, frozen=True, kw_only=True):
    """A word as it goes over the wire, under the lease of the job that executes the simulation."""

    token: str
    runner_id: str
    word: AnySimulationWord


class SimulationOrders(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker is answered, whatever it said."""

    run_id: str
    status: str
    go_on: bool
    """Whether it is believed; when not, it must stop at once and nothing it says counts any more."""
    reason: str = ""
    """Why not."""
    pause: bool = False
    """Stop after the present step: a pause or a cancel was asked for."""
    step: int = 0
    """After which step to go on."""
    total_steps: int | None = None
    checkpoint: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    danger_count: int = 0
    sampled: int = 0
    """Up to which step metrics are known."""
    beat_every_s: float = 5.0


class SimulationNews(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something has happened to a simulation; by the time it is told, it is so."""

    event: str
    """created, started, step, danger, pause_requested, paused, resume_requested, resumed, interrupted,
    cancel_requested, cancelled, completed or failed."""
    run_id: str
    at: datetime | None = None
    text: str = ""
    """What it warns of, or why it happened."""
    actor: str = ""
    simulation: SimulationView | None = None
    """With `step`: as it stands."""
