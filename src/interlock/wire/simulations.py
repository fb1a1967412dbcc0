"""Simulations: specifications, views, metrics, and messages between worker and manager.

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
    """Values by metric name, recorded in one step."""

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
        """Return these samples and later ones.

        Samples up to the last step are ignored. At most `most` samples and `MOST_METRICS` metrics are kept;
        metrics beyond the first ones are left out.
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
        """Return the samples up to a step; the steps after it are executed again."""
        return Samples(stride=self.stride, kept=tuple(each for each in self.kept if each.step <= step))


def fault_of(samples: Iterable[Sample], known: Iterable[str] = ()) -> str:
    """Return the fault of samples that a client sends.

    It is empty if they can be stored.
    """
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
"""Queue priority of each name: each step is a head start of one minute."""


class SimulationSpec(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A simulation to submit."""

    task: str = ""
    """Name of a `@simulation` that workers have; empty for one that is driven by hand."""
    input: msgspec.Raw = msgspec.Raw(b"{}")
    """JSON: an object of arguments by name."""
    run_id: str = ""
    """Id chosen by the client; by default a random one."""
    scenario_path: str = ""
    scenario_name: str = ""
    total_steps: int | None = None
    """Number of steps, where known."""
    priority: str = "normal"
    queue: str = "default"
    labels: tuple[str, ...] = ()
    """Labels that a worker must have."""
    losses: int = 0
    """Number of times it resumes by itself after a lost worker; after that it waits for a resume."""


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
    """The simulation is running, and its worker has been silent for a while."""
    priority: str = "normal"
    error: str | None = None
    danger_count: int = 0
    pause_requested: bool = False
    cancel_requested: bool = False
    resuming: bool = False
    """The simulation is stopped, and a job to resume it is waiting for a worker."""
    saved_step: int = 0
    """Step of the checkpoint, after which another worker would continue."""
    saved_at: datetime | None = None
    """Time of the checkpoint."""
    saved_bytes: int = 0
    """Size of the checkpoint."""
    execution: int = 0
    """Number of executions: the first, and one for each resume."""
    job_id: str = ""
    """The job that executes it, or did last."""
    task: str = ""
    queue: str = "default"
    labels: tuple[str, ...] = ()
    trouble: str = ""
    """Reason why the last execution ended early."""
    input: msgspec.Raw = msgspec.Raw(b"{}")
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class SimulationMetrics(View, frozen=True, kw_only=True, omit_defaults=True):
    """Metrics of a simulation over its steps; of a long one, sampled."""

    run_id: str
    status: str
    steps: tuple[int, ...] = ()
    series: dict[str, tuple[float | None, ...]] = msgspec.field(default_factory=dict)
    """Values by metric name, one for each of the steps; null where none was recorded."""
    stride: int = 1
    """Number of steps that one sample stands for; it has the values of the latest."""


class SimulationFilter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A filter of simulations; empty parts do not filter."""

    statuses: tuple[str, ...] = ()
    priority: str = ""
    text: str = ""
    """Part of its id, its task, or the name or path of its scenario, in any case."""


class Danger(msgspec.Struct, frozen=True, array_like=True):
    """A warning of a simulation. Warnings are numbered, so that none is counted twice."""

    number: int
    step: int
    text: str


class SimulationMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="word", omit_defaults=True):
    """Base of messages of a worker about the simulation that it executes."""

    step: int = 0
    """The last step that was completed."""
    total_steps: int | None = None
    checkpoint: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """State that the next step needs, if it was saved after this step."""
    dangers: tuple[Danger, ...] = ()
    samples: tuple[Sample, ...] = ()
    """Samples of steps that were not reported before."""


class Begin(SimulationMessage, frozen=True, kw_only=True, tag="begin"):
    """The worker is about to execute; a refusal stops it."""


class Beat(SimulationMessage, frozen=True, kw_only=True, tag="beat"):
    """The worker is alive and has reached this step."""


class Paused(SimulationMessage, frozen=True, kw_only=True, tag="paused"):
    """The worker has stopped between two steps, as requested."""


class Completed(SimulationMessage, frozen=True, kw_only=True, tag="completed"):
    """The last step has completed."""

    result: msgspec.Raw = msgspec.Raw(b"null")


class Failed(SimulationMessage, frozen=True, kw_only=True, tag="failed"):
    """A step has failed."""

    error: str


AnySimulationMessage: TypeAlias = Begin | Beat | Paused | Completed | Failed


class SaidOfSimulation(Secretive, frozen=True, kw_only=True):
    """A message about a simulation on the wire, under the lease of the job that executes it."""

    token: str
    runner_id: str
    word: AnySimulationMessage


class SimulationOrders(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Answer to every message of a worker about a simulation."""

    run_id: str
    status: str
    go_on: bool
    """Whether the message was accepted; if not, the worker must stop, and later messages are refused."""
    reason: str = ""
    """Reason of the refusal."""
    pause: bool = False
    """Stop after the present step: a pause or a cancel was requested."""
    step: int = 0
    """Step after which to continue."""
    total_steps: int | None = None
    checkpoint: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    danger_count: int = 0
    sampled: int = 0
    """Last step whose metrics are stored."""
    beat_every_s: float = 5.0


class SimulationNews(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event of a simulation, published after it was committed."""

    event: str
    """created, started, step, danger, pause_requested, paused, resume_requested, resumed, interrupted,
    cancel_requested, cancelled, completed or failed."""
    run_id: str
    at: datetime | None = None
    text: str = ""
    """Text of the warning, or the reason of the event."""
    actor: str = ""
    simulation: SimulationView | None = None
    """View of the simulation; with `step` only."""
