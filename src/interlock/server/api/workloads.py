"""Routes of workloads: the share of each agent.

The jobs that drive them are submitted and cancelled as jobs; `workload_jobs` shows those with their
figures.
"""

from __future__ import annotations

from interlock.api import workloads as api
from interlock.api.messages import HistoryPage
from interlock.errors import UnknownState
from interlock.lifecycles.workload import WORKLOAD
from interlock.server.api.runner import known_as
from interlock.server.api.visibility import is_shaped
from interlock.server.history import history_of
from interlock.server.routes import Call, handles
from interlock.store.records import Key, Query
from interlock.systems.fleet.workloads import Workloads, unknown_workload
from interlock.wire.workloads import WorkloadFacts, WorkloadsHeard, WorkloadView

STATES = tuple(str(state) for state in WORKLOAD.states)


@handles(api.TELL_WORKLOADS)
async def apply_facts(call: Call) -> WorkloadsHeard:
    """Record the events that a runner has received from the agents of its job."""
    body: WorkloadFacts = call.body
    await _workloads(call).apply_under(body.token, known_as(call.principal, body.runner_id), body.facts)
    return WorkloadsHeard(facts=len(body.facts))


@handles(api.LIST_WORKLOADS)
async def list_workloads(call: Call) -> api.WorkloadPage:
    """Return a page of workloads."""
    page: api.WorkloadsQuery = call.query
    if page.state and page.state.upper() not in STATES:
        raise UnknownState(page.state, STATES, where=WORKLOAD.name)
    query = Query(
        kind=WORKLOAD.name,
        states=(page.state.upper(),) if page.state else (),
        parent=page.job or None,
        limit=page.limit,
        cursor=page.cursor,
    )
    views, cursor = await _workloads(call).find(query)
    return api.WorkloadPage(workloads=tuple(views), cursor=cursor)


@handles(api.GET_WORKLOAD)
async def get_workload(call: Call) -> WorkloadView:
    """Return a workload."""
    workload_id = call.path["workload_id"]
    if not is_shaped(workload_id):
        raise unknown_workload(workload_id[:64])
    return await _workloads(call).get(workload_id)


@handles(api.GET_WORKLOAD_HISTORY)
async def get_history(call: Call) -> HistoryPage:
    """Return the journal of a workload, oldest first."""
    return await history_of(call, Key(WORKLOAD.name, (await get_workload(call)).id))


def _workloads(call: Call) -> Workloads:
    return call.parts.runtime.workloads
