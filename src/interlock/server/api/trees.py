"""Routes of job trees: show a tree; submit and list children from a handler."""

from __future__ import annotations

import msgspec

from interlock.api import jobs as api
from interlock.server.api.runner import known_as
from interlock.server.api.visibility import cursor_of_place, job_of, need_own_keys, place_of_cursor, sight_of
from interlock.server.authentication import lease_of
from interlock.server.routes import Call, handles
from interlock.systems.orchestrator.dependencies import named_in
from interlock.wire.artifacts import LEASE, RUNNER
from interlock.wire.jobs import Born, ChildPage, NewChildren, PredecessorPage, TreeView


@handles(api.GET_JOB_TREE)
async def get_tree(call: Call) -> TreeView:
    """Return a job and its visible descendants."""
    job = await job_of(call)
    sees = call.principal.sees if call.principal.scoped else None
    tree = await call.parts.runtime.jobs.tree(job.id, most=call.query.limit, sees=sees)
    failures = [node.failure.error for node in tree.nodes if node.failure is not None]
    sight = await sight_of(call, [*(node.parent_job_id for node in tree.nodes), *failures])
    nodes = [
        msgspec.structs.replace(
            node, parent_job_id=sight.id(node.parent_job_id), failure=sight.failure(node.failure)
        )
        for node in tree.nodes
    ]
    return msgspec.structs.replace(tree, nodes=tuple(nodes))


@handles(api.SUBMIT_CHILDREN)
async def submit_children(call: Call) -> Born:
    """Submit children of the attempt that holds the lease."""
    body: NewChildren = call.body
    call.principal.need_queues(spec.queue for spec in body.jobs)
    if call.principal.scoped:
        for other in named_in(body.jobs):
            await job_of(call, other)
    need_own_keys(call, body.jobs)
    runner_id = known_as(call.principal, body.runner_id)
    token = lease_of(call.principal, body.token)
    return Born(ids=await call.parts.runtime.trees.submit(token, runner_id, body.name, body.jobs))


@handles(api.LIST_CHILDREN)
async def list_children(call: Call) -> ChildPage:
    """Return the children of the job that holds the lease, with their results."""
    token, runner_id = (call.headers.get(name.lower(), "") for name in (LEASE, RUNNER))
    token, known = lease_of(call.principal, token), known_as(call.principal, runner_id)
    sees = call.principal.sees if call.principal.scoped else None
    page = await call.parts.runtime.trees.children(token, known, await place_of_cursor(call), sees)
    return msgspec.structs.replace(page, cursor=await cursor_of_place(call, page.cursor))


@handles(api.LIST_PREDECESSORS)
async def list_predecessors(call: Call) -> PredecessorPage:
    """Return the jobs that the job of the lease comes after, with their results."""
    token, runner_id = (call.headers.get(name.lower(), "") for name in (LEASE, RUNNER))
    token, known = lease_of(call.principal, token), known_as(call.principal, runner_id)
    sees = call.principal.sees if call.principal.scoped else None
    page = await call.parts.runtime.followers.predecessors(token, known, await place_of_cursor(call), sees)
    return msgspec.structs.replace(page, cursor=await cursor_of_place(call, page.cursor))
