"""The jobs of a plan that are to be created, and those of them that are alike. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from interlock.store.records import Batch, Change
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.body import PlanPlace, Provenance, RunPart
from interlock.systems.orchestrator.cancellation import commit_of
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.shapes import ANY_JOB, common_change
from interlock.systems.orchestrator.submission import JobParts, given_by, grouped, new_job, without_given
from interlock.systems.runs.body import RunBody
from interlock.systems.runs.plan_validation import confined, origin_of, spec_of
from interlock.systems.runs.plans import PlanGraph, PlanPiece
from interlock.wire.jobs import JobSpec

HOLD, RELEASE, STOP = "hold", "release", "stop"


class JobOrder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An order to create, release or stop some jobs of a run."""

    run_id: str
    pieces: int
    what: str
    places: tuple[int, ...]
    why: str = ""
    """The stop reason."""
    new: bool = False
    """Whether the jobs cannot exist yet, unless this is a repeat."""


class JobSource(msgspec.Struct, frozen=True):
    """The data needed to create jobs of a plan."""

    body: RunBody
    graph: PlanGraph
    pieces: dict[int, PlanPiece]


class NewRunJob(msgspec.Struct, frozen=True):
    """A job of a run that is to be created."""

    id: str
    spec: JobSpec
    plan: PlanPlace
    part: RunPart
    origin: Provenance | None
    held: bool

    @property
    def shape(self) -> tuple[object, ...]:
        """All that decisions about it depend on."""
        return without_given(self.spec), self.part, self.origin, self.held

    @property
    def given(self) -> bytes:
        """The data that no decision about it depends on."""
        return given_by(self.spec, plan=self.plan)

    def draft(self, now: datetime, settings: OrchestratorSettings, job_id: str = "") -> JobAggregate:
        """Return the new job, or under another id."""
        parts = JobParts(run=self.part, plan=self.plan, origin=self.origin)
        return new_job(self.spec, job_id or self.id, now, settings, parts, held=self.held)


def new_run_jobs(order: JobOrder, places: Sequence[int], source: JobSource | None) -> list[NewRunJob]:
    """Return the jobs of a plan that are to be created. Pure.

    Jobs whose piece is not known are left out.
    """
    if source is None:
        return []
    body, spec, graph = source.body, source.body.spec, source.graph
    from_fork, priority, trace, is_held = (
        spec.source.from_fork,
        spec.priority,
        spec.trace,
        order.what != RELEASE,
    )
    origins: dict[str, Provenance] = {}
    new = []
    numbers = graph.pieces_with(places)
    of_one = source.pieces.get(numbers[0]) if len(numbers) == 1 else None
    for place in places:
        piece = of_one or source.pieces.get(graph.piece_of(place))
        if piece is None:
            continue
        planned = piece.jobs[place - piece.first]
        if from_fork:
            planned = confined(planned, body)
        origin = origins.get(planned.environment)
        if origin is None:
            origin = origins[planned.environment] = origin_of(body, planned)
        is_root = graph.carried.issuperset(graph.needs[place])
        new.append(
            NewRunJob(
                id=graph.ids[place],
                spec=spec_of(planned, priority=priority, trace=trace, from_fork=from_fork),
                plan=PlanPlace(place, planned.name),
                part=RunPart(
                    run_id=order.run_id, required=planned.required, root=is_root, approval=planned.approval
                ),
                origin=origin,
                held=is_held or planned.approval is not None,
            )
        )
    return new


def created_together(
    new: Sequence[NewRunJob], now: datetime, commit_id: str, settings: OrchestratorSettings
) -> list[Batch]:
    """Return the jobs that are alike as batches, decided once.

    The others are decided one by one. Pure.
    """
    batches = []
    for _, places in grouped([each.shape for each in new]):
        some = [new[place] for place in places]
        common = created_like(some[0], now, commit_id, settings) if len(some) > 1 else None
        if common is not None:
            ids = tuple([each.id for each in some])
            batches.append(Batch(change=common, ids=ids, given=tuple([each.given for each in some])))
    return batches


def created_like(
    like: NewRunJob, now: datetime, commit_id: str, settings: OrchestratorSettings
) -> Change | None:
    """Return the creation of all jobs that are alike.

    Return None if each is created alone.
    """
    if like.part.approval is not None:
        return None
    commit = commit_of(like.draft(now, settings, ANY_JOB), commit_id=commit_id, actor="orchestrator")
    common = common_change(commit)
    return None if common is None else replace(common, given=None)
