"""Routes of workloads of fleets: what is known of each agent's share.

The jobs that drive them are submitted and cancelled as jobs; `workload_jobs` shows those with their
numbers.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from interlock.errors import (
    InvalidWorkload,
    LeaseExpired,
    LeaseRevoked,
    MessageRefused,
    UnknownLease,
    UnknownState,
    WrongRunner,
)
from interlock.lifecycles.workload import WORKLOAD
from interlock.server.api.runner import known_as
from interlock.server.api.visibility import SHAPE, is_shaped
from interlock.server.messages import (
    Cursor,
    HistoryPage,
    HistoryQuery,
    Limit,
    RequestId,
    entry_view,
)
from interlock.server.routes import Call, Confined, Lane, Link, Route
from interlock.store.records import Key, Query
from interlock.systems.access.principals import Role
from interlock.systems.fleet.outcome import WorkloadResult
from interlock.systems.fleet.spec import QUEUE, WorkloadSpec
from interlock.systems.fleet.workloads import Workloads, unknown_workload
from interlock.wire.workloads import (
    Latencies,
    SecondView,
    UnknownWorkload,
    WorkloadFacts,
    WorkloadsHeard,
    WorkloadView,
)


class WorkloadsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of which workloads."""

    job: Annotated[
        str, Meta(pattern=f"^(?:{SHAPE})?$", description="Of this job: one of each of its agents.")
    ] = ""
    state: Annotated[str, Meta(max_length=20, description="IDLE, READY, RUNNING, FAILED or ABORTING.")] = ""
    limit: Limit = 50
    cursor: Cursor = ""


class WorkloadPage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Workloads, newest first."""

    workloads: tuple[WorkloadView, ...]
    cursor: str = ""


class WorkloadJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job that drives a fleet, in short."""

    id: str
    state: str
    """Of the job."""
    name: str
    kind: str
    agents: int
    created_at: datetime
    started_at: datetime | None = None
    completed_at: datetime | None = None
    error: str = ""
    verdict: str = ""
    """What its result is worth: COMPLETE, DEGRADED or PARTIAL; the other outcomes are states of the job."""
    rate: float | None = None
    """Operations per second of all agents."""
    operations: int | None = None
    errors: int | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    thresholds: int = 0
    missed: int = 0
    """How many of the thresholds were not kept."""


class WorkloadJobsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page."""

    limit: Annotated[int, Meta(ge=1, le=100, description="At most so many.")] = 50
    cursor: Cursor = ""


class WorkloadJobs(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Jobs that drive fleets, newest first. `cursor` is for the next page, and is empty at the end."""

    workloads: tuple[WorkloadJob, ...]
    cursor: str = ""


class WorkloadJobView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job that drives a fleet, with what is known of its agents and what has come of it."""

    job: WorkloadJob
    spec: WorkloadSpec
    agents: tuple[WorkloadView, ...] = ()
    more_agents: bool = False
    """There are more; list them with GET /api/workloads?job=ID."""
    result: WorkloadResult | None = None
    """Once it is over; its seconds and its histogram are asked for on their own."""


class SecondsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """From where on."""

    after: Annotated[int, Meta(ge=-1, le=86_400, description="Only seconds after this one.")] = -1


class WorkloadSeconds(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Seconds of a workload, oldest first; of a long one several are one point."""

    seconds: tuple[SecondView, ...]
    step: int = 1
    """How many seconds one point stands for: the mean of their operations, and their highest latencies."""
    ended: bool = False


class PercentilePoint(msgspec.Struct, frozen=True, kw_only=True):
    """One point of the curve of a histogram."""

    nines: float
    """0 is the fastest operation, 1 is 90 %, 2 is 99 %."""
    percentile: float
    ms: float


class WorkloadPercentiles(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The merged histogram of all agents as a curve; the points of all curves have the same nines."""

    job_id: str
    name: str
    latencies: Latencies
    points: tuple[PercentilePoint, ...] = ()


class WorkloadKind(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A kind of workload that this server knows, and what it is given."""

    kind: str
    about: str
    json_schema: dict[str, Any]


class WorkloadKinds(msgspec.Struct, frozen=True, kw_only=True):
    """Kinds that come with Interlock or with packages beside the server; agents may know others."""

    kinds: tuple[WorkloadKind, ...]
    options: dict[str, Any]
    """The JSON Schema of a workload, whatever its kind."""
    queue: str
    """Where workers are expected that drive what is started here."""


class StartWorkload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A workload for a worker to drive."""

    workload: WorkloadSpec
    queue: Annotated[str, Meta(min_length=1, max_length=64, description="Queue of the job.")] = QUEUE
    check_only: bool = False
    """Say what is wrong, and start nothing."""
    request_id: RequestId | None = None


class StartedWorkload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The job that drives it; no id when it was only checked."""

    id: str = ""
    file: str = ""
    """The same as a workload file, for `interlock workload run FILE`."""


STATES = tuple(str(state) for state in WORKLOAD.states)


async def tell(call: Call) -> WorkloadsHeard:
    """What a runner has heard of the agents that its job drives."""
    said: WorkloadFacts = call.body
    await _workloads(call).tell_under(said.token, known_as(call.principal, said.runner_id), said.facts)
    return WorkloadsHeard(facts=len(said.facts))


async def list_workloads(call: Call) -> WorkloadPage:
    """A page of them."""
    asked: WorkloadsQuery = call.query
    if asked.state and asked.state.upper() not in STATES:
        raise UnknownState(asked.state, STATES, where=WORKLOAD.name)
    query = Query(
        kind=WORKLOAD.name,
        states=(asked.state.upper(),) if asked.state else (),
        parent=asked.job or None,
        limit=asked.limit,
        cursor=asked.cursor,
    )
    views, cursor = await _workloads(call).find(query)
    return WorkloadPage(workloads=tuple(views), cursor=cursor)


async def get_workload(call: Call) -> WorkloadView:
    """A workload as it stands."""
    workload_id = call.path["workload_id"]
    if not is_shaped(workload_id):
        raise unknown_workload(workload_id[:64])
    return await _workloads(call).get(workload_id)


async def get_history(call: Call) -> HistoryPage:
    """What the journal says about a workload, oldest first."""
    workload, asked = await get_workload(call), call.query
    feed = await call.parts.store.history(
        Key(WORKLOAD.name, workload.id), after_version=asked.after, limit=asked.limit
    )
    full = len(feed.entries) == asked.limit
    return HistoryPage(
        entries=tuple(map(entry_view, feed.entries)), after=feed.entries[-1].version if full else None
    )


def _workloads(call: Call) -> Workloads:
    return call.parts.runtime.workloads


_WORKLOAD = {"workload_id": "The id of a workload on one agent."}

ROUTES = (
    Route(
        method="GET",
        path="/api/workloads",
        name="listWorkloads",
        summary="List workloads of fleets, one for each agent, newest first.",
        handler=list_workloads,
        role=Role.VIEWER,
        everything=True,
        query=WorkloadsQuery,
        answer=WorkloadPage,
        errors=(UnknownState,),
        links=(Link("listWorkloads", "cursor", "$response.body#/cursor"),),
    ),
    Route(
        method="GET",
        path="/api/workloads/{workload_id}",
        name="getWorkload",
        summary="Show the workload on one agent.",
        handler=get_workload,
        role=Role.VIEWER,
        everything=True,
        parameters=_WORKLOAD,
        answer=WorkloadView,
        errors=(UnknownWorkload,),
    ),
    Route(
        method="GET",
        path="/api/workloads/{workload_id}/history",
        name="getWorkloadHistory",
        summary="Show everything that has happened to the workload on one agent.",
        handler=get_history,
        role=Role.VIEWER,
        everything=True,
        parameters=_WORKLOAD,
        query=HistoryQuery,
        answer=HistoryPage,
        errors=(UnknownWorkload,),
    ),
    Route(
        method="POST",
        path="/api/runner/workloads",
        name="tellWorkloads",
        summary="Tell what was heard of the agents that a job drives, under its lease.",
        handler=tell,
        role=Role.RUNNER,
        confined=Confined.LEASED,
        lane=Lane.RUNNER,
        bodies=(WorkloadFacts,),
        answer=WorkloadsHeard,
        errors=(
            InvalidWorkload,
            UnknownWorkload,
            UnknownLease,
            LeaseExpired,
            LeaseRevoked,
            WrongRunner,
            MessageRefused,
        ),
        example={
            "token": "j_0123456789ab.1.1.secret",
            "runner_id": "driver#1",
            "facts": [
                {
                    "workload_id": "j_0123456789ab_1_0",
                    "job_id": "j_0123456789ab",
                    "happened": "running",
                    "agent": "a.example:7167",
                    "kind": "http",
                }
            ],
        },
    ),
)
