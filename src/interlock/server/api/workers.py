"""Routes of workers: register, heartbeat, orders, list, pause, stop; quarantine of runners."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from interlock.api import workers as api
from interlock.api.messages import ActionAnswer, Done, HistoryPage
from interlock.lifecycles.worker import WORKER
from interlock.server.api.runner import known_as
from interlock.server.api.visibility import is_shaped
from interlock.server.bulk import act_once, answer_of, part_of, with_each
from interlock.server.history import history_of
from interlock.server.routes import Call, handles
from interlock.store.records import Key
from interlock.systems.supervisor.aggregate import runner_id_of
from interlock.systems.supervisor.workers import Workers, found_workers, matching_workers, unknown_worker
from interlock.wire.filters import read_worker_filter
from interlock.wire.workers import (
    Namesakes,
    Pools,
    Standings,
    StandingView,
    WorkerDeath,
    WorkerOrders,
    WorkerTasks,
    WorkerView,
)


@handles(api.REGISTER_WORKER)
async def register(call: Call) -> WorkerView:
    """Register a worker."""
    body: api.NewWorker = call.body
    call.principal.need_queues(body.queues)
    spec = body.spec()
    runner_id = known_as(call.principal, runner_id_of(spec)) if spec.name and spec.incarnation else ""
    return await _workers(call).register(
        spec, actor=call.actor, request_id=call.request_id, runner_id=runner_id
    )


@handles(api.BEAT_WORKER)
async def beat(call: Call) -> WorkerOrders:
    """Record a heartbeat; return the orders."""
    return await _workers(call).beat(_id(call), call.body, actor=call.actor)


@handles(api.GET_WORKER_ORDERS)
async def orders(call: Call) -> WorkerOrders:
    """Return the orders of a worker as soon as they change (long poll)."""
    query: api.OrdersQuery = call.query
    worker_id, workers, over = _id(call), _workers(call), call.parts.ending(call.principal)
    answer = workers.orders(
        worker_id,
        after=query.after,
        wait_s=query.wait_s,
        subscribe=call.parts.worker_wakeups.of(worker_id),
        actor=call.actor,
    )
    waiting = asyncio.ensure_future(answer)
    ending = asyncio.ensure_future(over.wait())  # a server that shuts down ends its long polls
    try:
        await asyncio.wait((waiting, ending), return_when=asyncio.FIRST_COMPLETED)
        return waiting.result() if waiting.done() else await workers.orders(worker_id, actor=call.actor)
    finally:
        waiting.cancel()
        ending.cancel()
        await asyncio.wait((waiting, ending))


@handles(api.LEAVE_WORKER)
async def leave(call: Call) -> WorkerView:
    """Report that the worker leaves."""
    return await _workers(call).leave(_id(call), reason=call.body.reason, actor=call.actor)


@handles(api.LIST_NAMESAKES)
async def namesakes(call: Call) -> Namesakes:
    """Return other live workers of the same name."""
    return Namesakes(workers=tuple(await _workers(call).namesakes(_id(call), actor=call.actor)))


@handles(api.REPORT_DEATH)
async def died(call: Call) -> WorkerView:
    """Report that the process of a worker has died."""
    death: WorkerDeath = call.body
    return await _workers(call).died(death.name, death.incarnation, reason=death.reason, actor=call.actor)


@handles(api.LIST_WORKERS)
async def list_workers(call: Call) -> api.WorkerPage:
    """Return a page of workers that match a filter."""
    query: api.WorkersQuery = call.query
    now = await call.parts.runtime.engine.clock.now()
    selection = read_worker_filter(query.q).selection(now, limit=query.limit, cursor=query.cursor)
    views, cursor = await _workers(call).find(selection.query)
    return api.WorkerPage(workers=tuple(view for view in views if selection.keeps(view)), cursor=cursor)


@handles(api.GET_WORKER)
async def get_worker(call: Call) -> WorkerView:
    """Return a worker."""
    return await _workers(call).get(_id(call))


@handles(api.GET_WORKER_TASKS)
async def get_tasks(call: Call) -> WorkerTasks:
    """Return the current and the latest tasks of a worker."""
    return await _workers(call).tasks(_id(call))


@handles(api.LIST_SUPERVISORS)
async def list_supervisors(call: Call) -> Pools:
    """Return the supervisors of hosts, with their workers."""
    return Pools(pools=tuple(await _workers(call).pools()))


@handles(api.GET_WORKER_HISTORY)
async def get_history(call: Call) -> HistoryPage:
    """Return the journal of a worker, oldest first."""
    return await history_of(call.parts.store, call.query, Key(WORKER.name, (await get_worker(call)).id))


@handles(api.PAUSE_WORKER)
async def pause(call: Call) -> WorkerView:
    """Pause a worker."""
    body: api.PauseRequest = call.body
    return await _workers(call).pause(
        _id(call),
        reason=body.reason,
        actor=call.actor,
        request_id=call.request_id,
        give_back=body.give_back,
    )


def hold(verb: str) -> Callable[[Call], Awaitable[WorkerView]]:
    """Return a handler for a command that takes only a reason."""

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


for _operation, _verb in (
    (api.START_WORKER, "start"),
    (api.RESUME_WORKER, "resume"),
    (api.TERMINATE_WORKER, "terminate"),
    (api.DRAIN_WORKER, "drain"),
):
    handles(_operation)(hold(_verb))


ENDPOINT = "worker actions"


@handles(api.ACT_ON_WORKERS)
async def act(call: Call) -> ActionAnswer:
    """Apply an action to all matching workers, and return the results."""
    return await act_once(call, ENDPOINT, call.body, partial(_act, call))


async def _act(call: Call) -> ActionAnswer:
    body: api.WorkerActionRequest = call.body
    workers = call.parts.runtime.workers
    wanted = matching_workers(read_worker_filter(body.filter), body.action)
    now = await call.parts.runtime.engine.clock.now()
    found = await found_workers(workers, wanted, now, limit=body.limit)
    if body.dry_run:
        done = tuple(Done(id=view.id, state=view.state) for view in found.views)
        return ActionAnswer(action=body.action, dry_run=True, done=done, more=found.more)
    more = {"give_back": body.give_back} if body.action == "pause" else {}

    async def one(worker_id: str) -> Done:
        after = await getattr(workers, body.action)(
            worker_id,
            reason=body.reason,
            actor=call.actor,
            request_id=part_of(call.request_id, worker_id),
            **more,
        )
        return Done(id=worker_id, state=after.state)

    outcomes = await with_each([view.id for view in found.views], one)
    return answer_of(body.action, outcomes, more=found.more)


@handles(api.LIST_QUARANTINE)
async def list_standings(call: Call) -> Standings:
    """Return every runner that has lost work lately."""
    return Standings(runners=tuple(await call.parts.runtime.quarantine.list()))


@handles(api.LIFT_QUARANTINE)
async def lift_quarantine(call: Call) -> StandingView:
    """Lift the quarantine of a runner."""
    body: api.LiftRequest = call.body
    return await call.parts.runtime.quarantine.lift(body.runner, actor=call.actor, reason=body.reason)
