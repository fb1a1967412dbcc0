"""Trees of jobs: looking at one, and what handlers do with the children of their jobs."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from interlock.errors import (
    InvalidJob,
    LeaseExpired,
    LeaseRevoked,
    MessageRefused,
    RequestIdReused,
    TerminalState,
    TooLarge,
    UnknownJob,
    UnknownLease,
    WrongRunner,
)
from interlock.server.api.runner import known_as
from interlock.server.api.visibility import job_of, place_asked, place_told, sight_of
from interlock.server.authentication import lease_of
from interlock.server.messages import Cursor
from interlock.server.problems import BadRequest
from interlock.server.routes import Call, Confined, Lane, Route
from interlock.systems.access.principals import NotAllowed, Role
from interlock.wire.artifacts import LEASE, RUNNER
from interlock.wire.jobs import MAX_NODES, NODES, Born, ChildPage, NewChildren, TreeView


class TreeQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much of a tree."""

    limit: Annotated[int, Meta(ge=1, le=MAX_NODES, description="How many jobs at most.")] = NODES


class ChildrenQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a list of children goes on."""

    cursor: Cursor = ""


async def get_tree(call: Call) -> TreeView:
    """A job and everything below it that can be seen."""
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


async def submit_children(call: Call) -> Born:
    """Children of the attempt whose lease is named."""
    asked: NewChildren = call.body
    call.principal.need_queues(spec.queue for spec in asked.jobs)
    runner_id = known_as(call.principal, asked.runner_id)
    token = lease_of(call.principal, asked.token)
    return Born(ids=await call.parts.runtime.trees.submit(token, runner_id, asked.name, asked.jobs))


async def list_children(call: Call) -> ChildPage:
    """The children of the job whose lease is named, with their results."""
    token, runner_id = (call.headers.get(name.lower(), "") for name in (LEASE, RUNNER))
    token, known = lease_of(call.principal, token), known_as(call.principal, runner_id)
    sees = call.principal.sees if call.principal.scoped else None
    page = await call.parts.runtime.trees.children(token, known, await place_asked(call), sees)
    return msgspec.structs.replace(page, cursor=await place_told(call, page.cursor))


_LEASED = (UnknownLease, LeaseExpired, LeaseRevoked, WrongRunner, MessageRefused, BadRequest)

ROUTES = (
    Route(
        method="GET",
        path="/api/jobs/{job_id}/tree",
        name="getJobTree",
        summary="Show a job and everything below it: states, progress, what it has cost.",
        handler=get_tree,
        role=Role.VIEWER,
        confined=Confined.HIDES,
        parameters={"job_id": "The id of a job."},
        query=TreeQuery,
        answer=TreeView,
        errors=(UnknownJob,),
    ),
    Route(
        method="POST",
        path="/api/runner/children",
        name="submitChildren",
        summary="Submit children of a job, under the lease of an attempt at it; once under a name.",
        handler=submit_children,
        role=Role.RUNNER,
        by_claim=True,
        confined=Confined.NAMES,
        lane=Lane.RUNNER,
        bodies=(NewChildren,),
        answer=Born,
        status=201,
        errors=(*_LEASED, InvalidJob, TooLarge, TerminalState, RequestIdReused, NotAllowed),
        example={
            "token": "j_0123456789ab.1.1.5f1c0d0a9b8e4c7d6a5b4c3d2e1f0a9b",
            "runner_id": "runner-7",
            "name": "pages",
            "jobs": [{"task": "shop.fetch", "input": {"page": 1}}],
        },
        answer_example={"ids": ["j_0123456789ac"]},
    ),
    Route(
        method="GET",
        path="/api/runner/children",
        name="listChildren",
        summary="List the children of a job with their results, under the lease of an attempt at it.",
        handler=list_children,
        role=Role.RUNNER,
        by_claim=True,
        confined=Confined.LEASED,
        lane=Lane.RUNNER,
        headers={LEASE: "The token of the lease.", RUNNER: "The runner that holds it."},
        query=ChildrenQuery,
        answer=ChildPage,
        errors=_LEASED,
    ),
)
