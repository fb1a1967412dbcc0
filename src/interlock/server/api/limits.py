"""Limits: list, show, declare and delete them."""

from __future__ import annotations

from interlock.api import limits as api
from interlock.server.routes import Call, handles
from interlock.systems.orchestrator.limits import BY_HAND
from interlock.wire.limits import KeyPage, LimitList, LimitView


@handles(api.LIST_LIMITS)
async def list_limits(call: Call) -> LimitList:
    """Return a page of the limits, by name."""
    query: api.LimitsQuery = call.query
    limits = call.parts.runtime.limits
    return await limits.page(keys=query.keys, limit=query.limit, after=query.cursor)


@handles(api.GET_LIMIT)
async def get_limit(call: Call) -> LimitView:
    """Return a limit, with the jobs that hold its slots."""
    query: api.LimitQuery = call.query
    return await call.parts.runtime.limits.get(query.limit)


@handles(api.LIST_LIMIT_KEYS)
async def list_keys(call: Call) -> KeyPage:
    """Return a page of the keys of a limit."""
    query: api.KeysQuery = call.query
    limits = call.parts.runtime.limits
    return await limits.keys(query.limit, state=query.state, limit=query.count, cursor=query.cursor)


@handles(api.SET_LIMIT)
async def set_limit(call: Call) -> LimitView:
    """Declare it, or change it."""
    body: api.NewLimit = call.body
    limits = call.parts.runtime.limits
    if body.source != BY_HAND:
        return await limits.declare(body.limit, body.spec, source=body.source, actor=call.actor)
    return await limits.set(body.limit, body.spec, actor=call.actor, request_id=call.request_id)


@handles(api.DELETE_LIMIT)
async def delete_limit(call: Call) -> LimitView:
    """Delete it."""
    body: api.LimitRequest = call.body
    return await call.parts.runtime.limits.delete(
        body.limit, reason=body.reason, actor=call.actor, request_id=call.request_id
    )
