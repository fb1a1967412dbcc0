"""Workers: register, heartbeat, orders, list, pause, stop; quarantine of runners."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from interlock.api.messages import (
    ActionAnswer,
    Cursor,
    HistoryPage,
    HistoryQuery,
    Input,
    Limit,
    Output,
    Reason,
    ReasonedRequest,
    RequestId,
)
from interlock.api.operation import Link, Operation, QueueConfinement, id_of
from interlock.errors import BadFilter, InvalidWorker, RequestIdReused, TransitionNotAllowed, UnknownWorker
from interlock.lifecycles.worker import WORKER
from interlock.wire.access import Role
from interlock.wire.workers import (
    Namesakes,
    Pools,
    Standings,
    StandingView,
    WorkerBeat,
    WorkerDeath,
    WorkerOrders,
    WorkerSpec,
    WorkerTasks,
    WorkerView,
)

_WORKER = id_of("worker", UnknownWorker)

LONGEST_WAIT_S = 30.0


class NewWorker(WorkerSpec, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A worker to register, optionally with a request id."""

    request_id: RequestId | None = None

    def spec(self) -> WorkerSpec:
        """Return the worker without the request id, which is not part of it."""
        return WorkerSpec(**{name: getattr(self, name) for name in WorkerSpec.__struct_fields__})


class HoldRequest(ReasonedRequest, frozen=True, kw_only=True):
    """Reason for holding or stopping a worker."""


class PauseRequest(HoldRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pause a worker."""

    give_back: Annotated[
        bool, Meta(description="Return running jobs to the queue instead of finishing them.")
    ] = False


Hold = TypeVar("Hold", bound=HoldRequest)


class LeaveRequest(Input, frozen=True, kw_only=True):
    """Deregister a worker."""

    reason: Reason = "it has done all it had"


class WorkersQuery(Input, frozen=True, kw_only=True):
    """Filter and page of workers."""

    q: Annotated[str, Meta(max_length=2_000, description="Filter, such as `state:running label:gpu`.")] = ""
    limit: Limit = 50
    cursor: Cursor = ""


class OrdersQuery(Input, frozen=True, kw_only=True):
    """Number of the latest known orders, and how long to wait for newer ones."""

    after: Annotated[int, Meta(ge=-1, le=2**53, description="Number of the latest known orders.")] = -1
    wait_s: Annotated[
        float, Meta(ge=0, le=LONGEST_WAIT_S, description="Time to wait for newer orders, in seconds.")
    ] = 0.0


class WorkerPage(Output, frozen=True, kw_only=True):
    """Workers, newest first."""

    workers: tuple[WorkerView, ...]
    cursor: str = ""


class WorkerActionRequest(Input, frozen=True, kw_only=True):
    """An action on every worker that matches a filter."""

    filter: Annotated[str, Meta(max_length=2_000, description="Filter, such as `state:running label:gpu`.")]
    action: Literal["pause", "resume", "terminate", "drain"]
    dry_run: Annotated[bool, Meta(description="Only list the workers that would change.")] = False
    give_back: Annotated[
        bool, Meta(description="Pause only: return running jobs to the queue instead of finishing them.")
    ] = False
    limit: Limit = 100
    reason: Reason = ""
    request_id: RequestId | None = None


class LiftRequest(Input, frozen=True, kw_only=True):
    """Runner to release from quarantine."""

    runner: Annotated[str, msgspec.Meta(min_length=1, max_length=300)]
    reason: Annotated[str, msgspec.Meta(max_length=1_000)] = ""


REGISTER_WORKER = Operation(
    name="registerWorker",
    request="POST /api/workers",
    summary="Register a worker; it is IDLE until its first task.",
    role=Role.RUNNER,
    confined=QueueConfinement.NAMES,
    input=NewWorker,
    required=True,
    output=WorkerView,
    status=201,
    errors=(InvalidWorker, RequestIdReused),
    example={"workspace_id": "ci", "name": "builder-1", "capacity": 4, "labels": ["linux"]},
    links=(Link("getWorker", "worker_id", "$response.body#/id"),),
)

LIST_WORKERS = Operation(
    name="listWorkers",
    request="GET /api/workers",
    summary="List workers, newest first, by a filter.",
    role=Role.VIEWER,
    input=WorkersQuery,
    output=WorkerPage,
    errors=(BadFilter,),
    links=(Link("listWorkers", "cursor", "$response.body#/cursor"),),
)

GET_WORKER = Operation(
    name="getWorker",
    request="GET /api/workers/{worker_id}",
    summary="Show a worker.",
    role=Role.VIEWER,
    parameters=_WORKER,
    output=WorkerView,
    errors=(UnknownWorker,),
)

GET_WORKER_TASKS = Operation(
    name="getWorkerTasks",
    request="GET /api/workers/{worker_id}/tasks",
    summary="Show the current and recent tasks of a worker.",
    role=Role.VIEWER,
    parameters=_WORKER,
    output=WorkerTasks,
    errors=(UnknownWorker,),
)

LIST_SUPERVISORS = Operation(
    name="listSupervisors",
    request="GET /api/supervisors",
    summary="List the supervisors of hosts, as their newest workers report them.",
    role=Role.VIEWER,
    output=Pools,
)

GET_WORKER_HISTORY = Operation(
    name="getWorkerHistory",
    request="GET /api/workers/{worker_id}/history",
    summary="Show the history of a worker.",
    role=Role.VIEWER,
    parameters=_WORKER,
    input=HistoryQuery,
    output=HistoryPage,
    errors=(UnknownWorker,),
)

BEAT_WORKER = Operation(
    name="beatWorker",
    request="POST /api/workers/{worker_id}/heartbeat",
    summary="Record a heartbeat; the response has the orders for the worker.",
    role=Role.RUNNER,
    confined=QueueConfinement.OWNS,
    parameters=_WORKER,
    input=WorkerBeat,
    output=WorkerOrders,
    errors=(UnknownWorker, InvalidWorker),
    example={"active": 2, "begun": True, "processed": 17},
)

GET_WORKER_ORDERS = Operation(
    name="getWorkerOrders",
    request="GET /api/workers/{worker_id}/orders",
    summary="Return the orders for a worker; waits for newer ones (long poll).",
    role=Role.RUNNER,
    confined=QueueConfinement.OWNS,
    parameters=_WORKER,
    input=OrdersQuery,
    output=WorkerOrders,
    errors=(UnknownWorker,),
    bounded=False,
)

LEAVE_WORKER = Operation(
    name="leaveWorker",
    request="POST /api/workers/{worker_id}/leave",
    summary="Deregister a worker that has finished its work.",
    role=Role.RUNNER,
    confined=QueueConfinement.OWNS,
    parameters=_WORKER,
    input=LeaveRequest,
    output=WorkerView,
    errors=(UnknownWorker,),
    example={"reason": "drained"},
)

LIST_NAMESAKES = Operation(
    name="listNamesakes",
    request="GET /api/workers/{worker_id}/namesakes",
    summary="List the other live workers that the caller has registered under the same name.",
    role=Role.RUNNER,
    confined=QueueConfinement.OWNS,
    parameters=_WORKER,
    output=Namesakes,
    errors=(UnknownWorker,),
)

REPORT_DEATH = Operation(
    name="reportDeath",
    request="POST /api/supervisor/deaths",
    summary="Report that the process of a worker has ended; its leases end at once.",
    role=Role.RUNNER,
    confined=QueueConfinement.OWNS,
    input=WorkerDeath,
    output=WorkerView,
    errors=(UnknownWorker,),
    example={"name": "builder-1", "incarnation": "5e1f0a2b", "reason": "killed by signal 9"},
)


_HELD = (UnknownWorker, TransitionNotAllowed, RequestIdReused)


def _hold(
    verb: str, path: str, summary: str, body: type[Hold], fires: str = ""
) -> Operation[Hold, WorkerView]:
    return Operation(
        name=f"{verb}Worker",
        request=f"POST {path}/{verb}",
        summary=summary,
        role=Role.OPERATOR,
        parameters=_WORKER,
        input=body,
        output=WorkerView,
        errors=_HELD,
        fires=(WORKER.name, fires) if fires else None,
        example={"reason": "deploy", "request_id": f"{verb}-17"},
    )


_SUPERVISED = "/api/supervisor/workers/{worker_id}"

START_WORKER = _hold(
    "start", "/api/workers/{worker_id}", "Start a worker, with or without a task.", HoldRequest
)
PAUSE_WORKER = _hold(
    "pause", _SUPERVISED, "Pause a worker: it takes no new jobs until resumed.", PauseRequest, "pause"
)
RESUME_WORKER = _hold("resume", _SUPERVISED, "Resume a worker.", HoldRequest, "resume")
TERMINATE_WORKER = _hold(
    "terminate",
    _SUPERVISED,
    "Terminate a worker; its jobs return to the queue.",
    HoldRequest,
    "terminate",
)
DRAIN_WORKER = _hold("drain", _SUPERVISED, "Drain a worker: it finishes its jobs and exits.", HoldRequest)

ACT_ON_WORKERS = Operation(
    name="actOnWorkers",
    request="POST /api/supervisor/workers/actions",
    summary="Pause, resume, drain or terminate all workers that match a filter; dry_run only lists them.",
    role=Role.OPERATOR,
    input=WorkerActionRequest,
    output=ActionAnswer,
    errors=(BadFilter, RequestIdReused),
    example={"filter": "label:gpu workspace:ci", "action": "pause", "dry_run": True, "reason": "deploy"},
)

LIST_QUARANTINE = Operation(
    name="listQuarantine",
    request="GET /api/quarantine",
    summary="List runners that have recently lost work, and those in quarantine.",
    role=Role.VIEWER,
    output=Standings,
)

LIFT_QUARANTINE = Operation(
    name="liftQuarantine",
    request="POST /api/quarantine/lift",
    summary="Lift the quarantine of a runner.",
    role=Role.OPERATOR,
    input=LiftRequest,
    output=StandingView,
    errors=(UnknownWorker,),
    example={"runner": "build-7", "reason": "the disk was full"},
)
