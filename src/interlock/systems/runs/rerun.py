"""Doing a run again: all of it, what has failed, or from one of its jobs on. Pure.

The new run has the same plan. A job that is not done again has succeeded, and stands in the new run
for itself: it counts as done from the beginning, under the name that it has in the old one. What has
not succeeded is always done again, so a rerun cannot hide a failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from interlock.errors import InvalidRun, TransitionNotAllowed
from interlock.lifecycles import run
from interlock.lifecycles.run import RUN, RunState
from interlock.store.records import Record
from interlock.systems.runs import body as letters
from interlock.systems.runs.body import RunBody
from interlock.systems.runs.plans import Graph, Piece
from interlock.wire.runs import Plan, RerunPreview

Which: TypeAlias = Literal["all", "failed", "from"]


def check_settled(record: Record) -> None:
    """Raise unless the outcome of the run is decided."""
    if RunState(record.state) not in run.SETTLED:
        raise TransitionNotAllowed(
            f"The run {record.id} is {record.state}; only one whose outcome is decided is done again.",
            allowed=["cancel"],
            todo="Wait for its end, or cancel it first.",
            facts={"run_id": record.id, "machine": RUN.name, "state": record.state},
        )


def carried_over(run_id: str, body: RunBody, graph: Graph, which: Which, job: str = "") -> frozenset[int]:
    """The places of jobs that are not done again."""
    done = {place for place, letter in enumerate(body.states) if letter in letters.SUCCEEDED}
    if which == "all":
        return frozenset()
    if which == "from":
        place = graph.place_of(job)
        if place is None:
            raise InvalidRun(
                f"The run {run_id} has no job {job!r}.",
                allowed=graph.names[:100],
                todo="Name one of its jobs; `interlock run show` lists them.",
                facts={"run_id": run_id, "job": job},
            )
        return frozenset(done - graph.downstream(place))
    if len(done) == len(graph.ids):
        raise InvalidRun(
            f"Every job of the run {run_id} has succeeded, so there is nothing to do again.",
            todo="Do all of it again, or from one of its jobs on.",
            facts={"run_id": run_id},
        )
    return frozenset(done)


def preview_of(run_id: str, graph: Graph, kept: frozenset[int]) -> RerunPreview:
    """Return the names of the jobs that are done again, and of those that are not."""
    return RerunPreview(
        run_id=run_id,
        again=tuple(name for place, name in enumerate(graph.names) if place not in kept),
        kept=tuple(name for place, name in enumerate(graph.names) if place in kept),
    )


def plan_of(pieces: Sequence[Piece], body: RunBody) -> Plan:
    """The plan of a run, put together again."""
    return Plan(
        jobs=tuple(job for piece in pieces for job in piece.jobs),
        skipped=tuple(job for piece in pieces for job in piece.skipped),
        fail_fast=body.fail_fast,
        timeout_s=body.timeout_s,
    )
