"""Workloads of fleets: each agent's share as it is known. Their jobs are submitted and cancelled as jobs."""

from __future__ import annotations

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
from interlock.server.api.visibility import is_shaped
from interlock.server.messages import HistoryPage, HistoryQuery, entry_view
from interlock.server.routes import Call, Confined, Lane, Link, Route
from interlock.server.workload_messages import WorkloadPage, WorkloadsQuery
from interlock.store.records import Key, Query
from interlock.systems.access.principals import Role
from interlock.systems.fleet.workloads import Workloads, unknown_workload
from interlock.wire.fleet.errors import UnknownWorkload
from interlock.wire.workloads import WorkloadFacts, WorkloadsHeard, WorkloadView

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
