"""Workloads of fleets, and the jobs that drive them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from interlock.api.messages import Cursor, HistoryPage, HistoryQuery, Input, Limit, Output, RequestId
from interlock.api.operation import SHAPE, Link, Operation, QueueConfinement, id_of
from interlock.errors import (
    CannotLoad,
    InvalidJob,
    InvalidWorkload,
    LeaseExpired,
    LeaseRevoked,
    MessageRefused,
    NotAllowed,
    RequestIdReused,
    TooLarge,
    UnknownJob,
    UnknownLease,
    UnknownState,
    UnknownWorkload,
    WrongRunner,
)
from interlock.wire.access import (
    Role,
)
from interlock.wire.workloads import (
    QUEUE,
    Latencies,
    SecondView,
    WorkloadFacts,
    WorkloadResult,
    WorkloadsHeard,
    WorkloadSpec,
    WorkloadView,
)

_WORKLOAD = id_of("workload", UnknownWorkload, meaning="The id of a workload on one agent.")

_BY_JOB = (
    Link("getWorkloadJob", "job_id", "$response.body#/workloads/0/id"),
    Link("listWorkloadJobs", "cursor", "$response.body#/cursor"),
)


class WorkloadsQuery(Input, frozen=True, kw_only=True):
    """Filter and page of workloads."""

    job: Annotated[
        str, Meta(pattern=f"^(?:{SHAPE})?$", description="Only workloads of this job, one for each agent.")
    ] = ""
    state: Annotated[str, Meta(max_length=20, description="IDLE, READY, RUNNING, FAILED or ABORTING.")] = ""
    limit: Limit = 50
    cursor: Cursor = ""


class WorkloadPage(Output, frozen=True, kw_only=True):
    """Workloads, newest first."""

    workloads: tuple[WorkloadView, ...]
    cursor: str = ""


class WorkloadJob(Output, frozen=True, kw_only=True):
    """Summary of a job that drives a fleet."""

    id: str
    state: str
    """State of the job."""
    name: str
    kind: str
    agents: int
    created_at: datetime
    started_at: datetime | None = None
    completed_at: datetime | None = None
    error: str = ""
    verdict: str = ""
    """Quality of its result: COMPLETE, DEGRADED or PARTIAL; the other outcomes are states of the job."""
    rate: float | None = None
    """Operations per second of all agents."""
    operations: int | None = None
    errors: int | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    thresholds: int = 0
    missed: int = 0
    """Number of thresholds that were not met."""


class WorkloadJobsQuery(Input, frozen=True, kw_only=True):
    """Page of jobs."""

    limit: Annotated[int, Meta(ge=1, le=100, description="Maximum number of results.")] = 50
    cursor: Cursor = ""


class WorkloadJobs(Output, frozen=True, kw_only=True):
    """Jobs that drive fleets, newest first. `cursor` is for the next page, and is empty at the end."""

    workloads: tuple[WorkloadJob, ...]
    cursor: str = ""


class WorkloadJobView(Output, frozen=True, kw_only=True):
    """A job that drives a fleet, with the state of its agents and its result."""

    job: WorkloadJob
    spec: WorkloadSpec
    agents: tuple[WorkloadView, ...] = ()
    more_agents: bool = False
    """More agents exist; list them with GET /api/workloads?job=ID."""
    result: WorkloadResult | None = None
    """Result, once it has ended; its seconds and its histogram have requests of their own."""


class SecondsQuery(Input, frozen=True, kw_only=True):
    """Last second to leave out."""

    after: Annotated[int, Meta(ge=-1, le=86_400, description="Only samples after this second.")] = -1


class WorkloadSeconds(Output, frozen=True, kw_only=True):
    """Seconds of a workload, oldest first; of a long one, several seconds make one point."""

    seconds: tuple[SecondView, ...]
    step: int = 1
    """Number of seconds that a point stands for: the mean of their operations, and their highest
    latencies.
    """
    ended: bool = False


class PercentilePoint(msgspec.Struct, frozen=True, kw_only=True):
    """A point of the curve of a histogram."""

    nines: float
    """0 is the fastest operation, 1 is 90 %, 2 is 99 %."""
    percentile: float
    ms: float


class WorkloadPercentiles(Output, frozen=True, kw_only=True):
    """The merged histogram of all agents as a curve; the points of all curves have the same nines."""

    job_id: str
    name: str
    latencies: Latencies
    points: tuple[PercentilePoint, ...] = ()


class WorkloadKind(Output, frozen=True, kw_only=True):
    """A kind of workload that this server knows, and the schema of its input."""

    kind: str
    about: str
    json_schema: dict[str, Any]


class WorkloadKinds(msgspec.Struct, frozen=True, kw_only=True):
    """Kinds that come with Interlock or with packages beside the server; agents may know others."""

    kinds: tuple[WorkloadKind, ...]
    options: dict[str, Any]
    """JSON Schema of the options that all kinds share."""
    queue: str
    """Queue whose workers drive workloads that are started here."""


class StartWorkload(Input, frozen=True, kw_only=True):
    """A workload for a worker to drive."""

    workload: WorkloadSpec
    queue: Annotated[str, Meta(min_length=1, max_length=64, description="Queue of the job.")] = QUEUE
    check_only: bool = False
    """Validate only, and start nothing."""
    request_id: RequestId | None = None


class StartedWorkload(Output, frozen=True, kw_only=True):
    """The job that drives it; no id when it was only checked."""

    id: str = ""
    file: str = ""
    """The same as a workload file, for `interlock workload run FILE`."""


LIST_WORKLOAD_JOBS = Operation(
    name="listWorkloadJobs",
    request="GET /api/workload-jobs",
    summary="List jobs that drive fleets, newest first.",
    role=Role.VIEWER,
    input=WorkloadJobsQuery,
    output=WorkloadJobs,
    links=_BY_JOB,
)

START_WORKLOAD = Operation(
    name="startWorkload",
    request="POST /api/workload-jobs",
    summary="Validate a workload, and submit the job that drives its agents.",
    role=Role.SUBMITTER,
    confined=QueueConfinement.NAMES,
    input=StartWorkload,
    output=StartedWorkload,
    status=201,
    errors=(InvalidWorkload, InvalidJob, TooLarge, RequestIdReused, NotAllowed),
    example={
        "workload": {
            "kind": "http",
            "name": "checkout",
            "spec": {"url": "http://127.0.0.1:8080/"},
            "agents": ["a.example", "b.example:7168"],
            "duration_s": 30,
            "rate": 200,
            "thresholds": {"p99_ms": 250, "error_share": 0.01},
        },
        "request_id": "checkout-17",
    },
    answer_example={"id": "j_0123456789ab", "file": "kind: http\nname: checkout\n"},
    links=(Link("getWorkloadJob", "job_id", "$response.body#/id"),),
)

_ONE = id_of("job", UnknownJob, meaning="The id of a job that drives a fleet.")

GET_WORKLOAD_JOB = Operation(
    name="getWorkloadJob",
    request="GET /api/workload-jobs/{job_id}",
    summary="Show a workload: its agents and its result.",
    role=Role.VIEWER,
    parameters=_ONE,
    output=WorkloadJobView,
    errors=(UnknownJob,),
)

GET_WORKLOAD_SECONDS = Operation(
    name="getWorkloadSeconds",
    request="GET /api/workload-jobs/{job_id}/seconds",
    summary="Show throughput and latencies of all agents second by second, also while it runs.",
    role=Role.VIEWER,
    parameters=_ONE,
    input=SecondsQuery,
    output=WorkloadSeconds,
    errors=(UnknownJob,),
)

GET_WORKLOAD_PERCENTILES = Operation(
    name="getWorkloadPercentiles",
    request="GET /api/workload-jobs/{job_id}/percentiles",
    summary="Show the merged histogram of a finished workload as a curve of percentiles.",
    role=Role.VIEWER,
    parameters=_ONE,
    output=WorkloadPercentiles,
    errors=(UnknownJob, UnknownWorkload, CannotLoad),
)

LIST_WORKLOAD_KINDS = Operation(
    name="listWorkloadKinds",
    request="GET /api/workload-kinds",
    summary="List the kinds of workloads that this server knows, with their schemas.",
    role=Role.VIEWER,
    confined=QueueConfinement.NOTHING,
    output=WorkloadKinds,
)

LIST_WORKLOADS = Operation(
    name="listWorkloads",
    request="GET /api/workloads",
    summary="List workloads of fleets, one for each agent, newest first.",
    role=Role.VIEWER,
    input=WorkloadsQuery,
    output=WorkloadPage,
    errors=(UnknownState,),
    links=(Link("listWorkloads", "cursor", "$response.body#/cursor"),),
)

GET_WORKLOAD = Operation(
    name="getWorkload",
    request="GET /api/workloads/{workload_id}",
    summary="Show the workload on one agent.",
    role=Role.VIEWER,
    parameters=_WORKLOAD,
    output=WorkloadView,
    errors=(UnknownWorkload,),
)

GET_WORKLOAD_HISTORY = Operation(
    name="getWorkloadHistory",
    request="GET /api/workloads/{workload_id}/history",
    summary="Show the history of the workload on one agent.",
    role=Role.VIEWER,
    parameters=_WORKLOAD,
    input=HistoryQuery,
    output=HistoryPage,
    errors=(UnknownWorkload,),
)

TELL_WORKLOADS = Operation(
    name="tellWorkloads",
    request="POST /api/runner/workloads",
    summary="Report the state of the agents that a job drives, under its lease.",
    role=Role.RUNNER,
    confined=QueueConfinement.LEASED,
    input=WorkloadFacts,
    output=WorkloadsHeard,
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
)
