"""Routes of workers: register, heartbeat, orders, list, pause, stop; quarantine of runners."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from interlock.errors import InvalidWorker, RequestIdReused, TransitionNotAllowed, UnknownWorker
from interlock.lifecycles.worker import WORKER
from interlock.server.api.runner import known_as
from interlock.server.api.visibility import is_shaped
from interlock.server.bulk import act_once, answer_of, part_of, with_each
from interlock.server.messages import (
    ActionAnswer,
    Cursor,
    Done,
    HistoryPage,
    HistoryQuery,
    Limit,
    Reason,
    RequestId,
    entry_view,
)
from interlock.server.routes import Call, Confined, Handler, Lane, Link, Route
from interlock.store.records import Key
from interlock.systems.access.principals import Role
from interlock.systems.supervisor.aggregate import runner_id_of
from interlock.systems.supervisor.workers import Workers, found_workers, matching_workers, unknown_worker
from interlock.wire.filter_language import BadFilter
from interlock.wire.filters import read_worker_filter
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

LONGEST_WAIT_S = 30.0


class NewWorker(WorkerSpec, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A worker to be registered, perhaps under a request id."""

    request_id: RequestId | None = None

    def spec(self) -> WorkerSpec:
        """The worker without the id of the request, which is not part of it."""
        return WorkerSpec(**{name: getattr(self, name) for name in WorkerSpec.__struct_fields__})


class HoldRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What shall be done with a worker, and why."""

    reason: Reason = ""
    request_id: RequestId | None = None


class PauseRequest(HoldRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Take nothing new."""

    give_back: Annotated[bool, Meta(description="Give back what it has, instead of finishing it.")] = False


class LeaveRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The worker goes."""

    reason: Reason = "it has done all it had"


class WorkersQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of which workers."""

    q: Annotated[str, Meta(max_length=2_000, description="Which workers: `state:running label:gpu`.")] = ""
    limit: Limit = 50
    cursor: Cursor = ""


class OrdersQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Newer orders than these, and how long to wait for them."""

    after: Annotated[int, Meta(ge=-1, le=2**53)] = -1
    wait_s: Annotated[float, Meta(ge=0, le=LONGEST_WAIT_S)] = 0.0


class WorkerPage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Workers, newest first."""

    workers: tuple[WorkerView, ...]
    cursor: str = ""


async def register(call: Call) -> WorkerView:
    """A new life."""
    asked: NewWorker = call.body
    call.principal.need_queues(asked.queues)
    spec = asked.spec()
    runner_id = known_as(call.principal, runner_id_of(spec)) if spec.name and spec.incarnation else ""
    return await _workers(call).register(
        spec, actor=call.actor, request_id=call.request_id, runner_id=runner_id
    )


async def beat(call: Call) -> WorkerOrders:
    """A sign of life, answered with orders."""
    return await _workers(call).beat(_id(call), call.body, actor=call.actor)


async def orders(call: Call) -> WorkerOrders:
    """What the worker shall do, as soon as that is news."""
    asked: OrdersQuery = call.query
    worker_id, workers, over = _id(call), _workers(call), call.parts.ending(call.principal)
    heard = workers.orders(
        worker_id,
        after=asked.after,
        wait_s=asked.wait_s,
        subscribe=call.parts.bells.of(worker_id),
        actor=call.actor,
    )
    waiting = asyncio.ensure_future(heard)
    ending = asyncio.ensure_future(over.wait())  # a server that has to go keeps nobody waiting
    try:
        await asyncio.wait((waiting, ending), return_when=asyncio.FIRST_COMPLETED)
        return waiting.result() if waiting.done() else await workers.orders(worker_id, actor=call.actor)
    finally:
        waiting.cancel()
        ending.cancel()
        await asyncio.wait((waiting, ending))


async def leave(call: Call) -> WorkerView:
    """The worker goes."""
    return await _workers(call).leave(_id(call), reason=call.body.reason, actor=call.actor)


async def namesakes(call: Call) -> Namesakes:
    """The other living workers under the same name."""
    return Namesakes(workers=tuple(await _workers(call).namesakes(_id(call), actor=call.actor)))


async def died(call: Call) -> WorkerView:
    """A process was seen to have ended."""
    told: WorkerDeath = call.body
    return await _workers(call).died(told.name, told.incarnation, reason=told.reason, actor=call.actor)


async def list_workers(call: Call) -> WorkerPage:
    """A page of what a filter means."""
    asked: WorkersQuery = call.query
    now = await call.parts.runtime.engine.clock.now()
    selection = read_worker_filter(asked.q).selection(now, limit=asked.limit, cursor=asked.cursor)
    views, cursor = await _workers(call).find(selection.query)
    return WorkerPage(workers=tuple(view for view in views if selection.keeps(view)), cursor=cursor)


async def get_worker(call: Call) -> WorkerView:
    """A worker as it stands."""
    return await _workers(call).get(_id(call))


async def get_tasks(call: Call) -> WorkerTasks:
    """Return what a worker executes now, and what it has executed lately."""
    return await _workers(call).tasks(_id(call))


async def list_supervisors(call: Call) -> Pools:
    """Return the supervisors of hosts, with their workers."""
    return Pools(pools=tuple(await _workers(call).pools()))


async def get_history(call: Call) -> HistoryPage:
    """What the journal says about a worker, oldest first."""
    worker, asked = await get_worker(call), call.query
    feed = await call.parts.store.history(
        Key(WORKER.name, worker.id), after_version=asked.after, limit=asked.limit
    )
    full = len(feed.entries) == asked.limit
    return HistoryPage(
        entries=tuple(map(entry_view, feed.entries)), after=feed.entries[-1].version if full else None
    )


async def pause(call: Call) -> WorkerView:
    """Take nothing new."""
    asked: PauseRequest = call.body
    return await _workers(call).pause(
        _id(call),
        reason=asked.reason,
        actor=call.actor,
        request_id=call.request_id,
        give_back=asked.give_back,
    )


def hold(verb: str) -> Handler:
    """A handler that does one of the things that need a reason and nothing else."""

    async def handle(call: Call) -> WorkerView:
        act = getattr(_workers(call), verb)
        done: WorkerView = await act(
            _id(call), reason=call.body.reason, actor=call.actor, request_id=call.request_id
        )
        return done

    return handle


def _workers(call: Call) -> Workers:
    return call.parts.runtime.workers


def _id(call: Call) -> str:
    worker_id = call.path["worker_id"]
    if not is_shaped(worker_id):
        raise unknown_worker(worker_id[:64])
    return worker_id


_WORKER = {"worker_id": "The id of a worker."}
_HELD = (UnknownWorker, TransitionNotAllowed, RequestIdReused)


def _hold(path: str, verb: str, summary: str, *, body: type[HoldRequest] = HoldRequest) -> Route:
    return Route(
        method="POST",
        path=f"{path}/{verb}",
        name=f"{verb}Worker",
        summary=summary,
        handler=pause if verb == "pause" else hold(verb),
        role=Role.OPERATOR,
        everything=True,
        fires=(WORKER.name, verb) if verb in ("pause", "resume", "terminate") else None,
        parameters=_WORKER,
        bodies=(body,),
        body_required=False,
        repeatable=True,
        answer=WorkerView,
        errors=_HELD,
        example={"reason": "deploy", "request_id": f"{verb}-17"},
    )


_SUPERVISED = "/api/supervisor/workers/{worker_id}"

ROUTES = (
    Route(
        method="POST",
        path="/api/workers",
        name="registerWorker",
        summary="Register a worker; it is IDLE until its first task.",
        handler=register,
        role=Role.RUNNER,
        confined=Confined.NAMES,
        bodies=(NewWorker,),
        repeatable=True,
        answer=WorkerView,
        status=201,
        lane=Lane.RUNNER,
        errors=(InvalidWorker, RequestIdReused),
        example={"workspace_id": "ci", "name": "builder-1", "capacity": 4, "labels": ["linux"]},
        links=(Link("getWorker", "worker_id", "$response.body#/id"),),
    ),
    Route(
        method="GET",
        path="/api/workers",
        name="listWorkers",
        summary="List workers, newest first, by a filter.",
        handler=list_workers,
        role=Role.VIEWER,
        everything=True,
        query=WorkersQuery,
        answer=WorkerPage,
        errors=(BadFilter,),
        links=(Link("listWorkers", "cursor", "$response.body#/cursor"),),
    ),
    Route(
        method="GET",
        path="/api/workers/{worker_id}",
        name="getWorker",
        summary="Show a worker.",
        handler=get_worker,
        role=Role.VIEWER,
        everything=True,
        parameters=_WORKER,
        answer=WorkerView,
        errors=(UnknownWorker,),
    ),
    Route(
        method="GET",
        path="/api/workers/{worker_id}/tasks",
        name="getWorkerTasks",
        summary="Show what a worker executes now, and what it has executed lately.",
        handler=get_tasks,
        role=Role.VIEWER,
        everything=True,
        parameters=_WORKER,
        answer=WorkerTasks,
        errors=(UnknownWorker,),
    ),
    Route(
        method="GET",
        path="/api/supervisors",
        name="listSupervisors",
        summary="List the supervisors of hosts, as the newest workers tell of them.",
        handler=list_supervisors,
        role=Role.VIEWER,
        everything=True,
        answer=Pools,
    ),
    Route(
        method="GET",
        path="/api/workers/{worker_id}/history",
        name="getWorkerHistory",
        summary="Show everything that has happened to a worker.",
        handler=get_history,
        role=Role.VIEWER,
        everything=True,
        parameters=_WORKER,
        query=HistoryQuery,
        answer=HistoryPage,
        errors=(UnknownWorker,),
    ),
    Route(
        method="POST",
        path="/api/workers/{worker_id}/heartbeat",
        name="beatWorker",
        summary="A sign of life; the answer says what the worker shall do.",
        handler=beat,
        role=Role.RUNNER,
        confined=Confined.OWNS,
        parameters=_WORKER,
        bodies=(WorkerBeat,),
        body_required=False,
        answer=WorkerOrders,
        lane=Lane.RUNNER,
        errors=(UnknownWorker, InvalidWorker),
        example={"active": 2, "begun": True, "processed": 17},
    ),
    Route(
        method="GET",
        path="/api/workers/{worker_id}/orders",
        name="getWorkerOrders",
        summary="What the worker shall do; waits for newer orders than those it knows.",
        handler=orders,
        role=Role.RUNNER,
        confined=Confined.OWNS,
        parameters=_WORKER,
        query=OrdersQuery,
        answer=WorkerOrders,
        lane=Lane.RUNNER,
        bounded=False,
        errors=(UnknownWorker,),
    ),
    Route(
        method="POST",
        path="/api/workers/{worker_id}/leave",
        name="leaveWorker",
        summary="The worker says that it goes, with nothing left to do.",
        handler=leave,
        role=Role.RUNNER,
        confined=Confined.OWNS,
        parameters=_WORKER,
        bodies=(LeaveRequest,),
        body_required=False,
        answer=WorkerView,
        lane=Lane.RUNNER,
        errors=(UnknownWorker,),
        example={"reason": "drained"},
    ),
    Route(
        method="GET",
        path="/api/workers/{worker_id}/namesakes",
        name="listNamesakes",
        summary="The other living workers that the caller has registered under the same name.",
        handler=namesakes,
        role=Role.RUNNER,
        confined=Confined.OWNS,
        parameters=_WORKER,
        answer=Namesakes,
        lane=Lane.RUNNER,
        errors=(UnknownWorker,),
    ),
    Route(
        method="POST",
        path="/api/supervisor/deaths",
        name="reportDeath",
        summary="The process of a worker was seen to have ended; its leases end at once.",
        handler=died,
        role=Role.RUNNER,
        confined=Confined.OWNS,
        bodies=(WorkerDeath,),
        answer=WorkerView,
        lane=Lane.RUNNER,
        errors=(UnknownWorker,),
        example={"name": "builder-1", "incarnation": "5e1f0a2b", "reason": "killed by signal 9"},
    ),
    _hold("/api/workers/{worker_id}", "start", "Begin, with or without a task."),
    _hold(_SUPERVISED, "pause", "Take nothing new until resumed.", body=PauseRequest),
    _hold(_SUPERVISED, "resume", "Take work again."),
    _hold(_SUPERVISED, "terminate", "Stop a worker for certain; its work returns to the queue."),
    _hold(_SUPERVISED, "drain", "Finish what it has, and go."),
)


ENDPOINT = "worker actions"


class WorkerActionRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Do something with every worker that a filter means."""

    filter: Annotated[str, Meta(max_length=2_000, description="Which workers: `state:running label:gpu`.")]
    action: Literal["pause", "resume", "terminate", "drain"]
    dry_run: Annotated[bool, Meta(description="Only say which workers it would be.")] = False
    give_back: Annotated[
        bool, Meta(description="Pause only: give back what they have, instead of finishing it.")
    ] = False
    limit: Limit = 100
    reason: Reason = ""
    request_id: RequestId | None = None


async def act(call: Call) -> ActionAnswer:
    """Find them, do it with each, and say what came of it."""
    return await act_once(call, ENDPOINT, call.body, partial(_act, call))


async def _act(call: Call) -> ActionAnswer:
    asked: WorkerActionRequest = call.body
    workers = call.parts.runtime.workers
    wanted = matching_workers(read_worker_filter(asked.filter), asked.action)
    now = await call.parts.runtime.engine.clock.now()
    found = await found_workers(workers, wanted, now, limit=asked.limit)
    if asked.dry_run:
        done = tuple(Done(id=view.id, state=view.state) for view in found.views)
        return ActionAnswer(action=asked.action, dry_run=True, done=done, more=found.more)
    more = {"give_back": asked.give_back} if asked.action == "pause" else {}

    async def one(worker_id: str) -> Done:
        after = await getattr(workers, asked.action)(
            worker_id,
            reason=asked.reason,
            actor=call.actor,
            request_id=part_of(call.request_id, worker_id),
            **more,
        )
        return Done(id=worker_id, state=after.state)

    outcomes = await with_each([view.id for view in found.views], one)
    return answer_of(asked.action, outcomes, more=found.more)


BULK_ROUTES = (
    Route(
        method="POST",
        path="/api/supervisor/workers/actions",
        name="actOnWorkers",
        summary="Hold, resume or end every worker that a filter means; with dry_run only say which.",
        handler=act,
        role=Role.OPERATOR,
        everything=True,
        bodies=(WorkerActionRequest,),
        repeatable=True,
        answer=ActionAnswer,
        errors=(BadFilter, RequestIdReused),
        example={"filter": "label:gpu workspace:ci", "action": "pause", "dry_run": True, "reason": "deploy"},
    ),
)


class LiftRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which runner is in order again."""

    runner: Annotated[str, msgspec.Meta(min_length=1, max_length=300)]
    reason: Annotated[str, msgspec.Meta(max_length=1_000)] = ""


async def list_standings(call: Call) -> Standings:
    """Every runner that has lost work lately."""
    return Standings(runners=tuple(await call.parts.runtime.quarantine.list()))


async def lift_quarantine(call: Call) -> StandingView:
    """Give a runner work again."""
    asked: LiftRequest = call.body
    return await call.parts.runtime.quarantine.lift(asked.runner, actor=call.actor, reason=asked.reason)


QUARANTINE_ROUTES = (
    Route(
        method="GET",
        path="/api/quarantine",
        name="listQuarantine",
        summary="List the runners that have lost work lately, and those that are given none because of it.",
        handler=list_standings,
        role=Role.VIEWER,
        everything=True,
        answer=Standings,
    ),
    Route(
        method="POST",
        path="/api/quarantine/lift",
        name="liftQuarantine",
        summary="Give a runner work again that was quarantined.",
        handler=lift_quarantine,
        role=Role.OPERATOR,
        everything=True,
        bodies=(LiftRequest,),
        answer=StandingView,
        errors=(UnknownWorker,),
        example={"runner": "build-7", "reason": "the disk was full"},
    ),
)
