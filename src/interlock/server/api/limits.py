"""Limits: list, show, declare and delete them."""

from __future__ import annotations

from interlock.api import limits as api
from interlock.server.routes import Call, handles
from interlock.systems.orchestrator.limits import BY_HAND
from interlock.wire.limits import KeyPage, LimitList, LimitView


@handles(api.LIST_LIMITS)
async def list_limits(call: Call) -> LimitList:
    """Return a page of the limits, by name."""
    asked: api.LimitsQuery = call.query
    limits = call.parts.runtime.limits
    return await limits.page(keys=asked.keys, limit=asked.limit, after=asked.cursor)


@handles(api.GET_LIMIT)
async def get_limit(call: Call) -> LimitView:
    """Return a limit, with the jobs that hold its slots."""
    asked: api.LimitQuery = call.query
    return await call.parts.runtime.limits.get(asked.limit)


@handles(api.LIST_LIMIT_KEYS)
async def list_keys(call: Call) -> KeyPage:
    """Return a page of the keys of a limit."""
    asked: api.KeysQuery = call.query
    limits = call.parts.runtime.limits
    return await limits.keys(asked.limit, state=asked.state, limit=asked.count, cursor=asked.cursor)


@handles(api.SET_LIMIT)
async def set_limit(call: Call) -> LimitView:
    """Declare it, or change it."""
    asked: api.NewLimit = call.body
    limits = call.parts.runtime.limits
    if asked.source != BY_HAND:
        return await limits.declare(asked.limit, asked.spec, source=asked.source, actor=call.actor)
    return await limits.set(asked.limit, asked.spec, actor=call.actor, request_id=call.request_id)


@handles(api.DELETE_LIMIT)
async def delete_limit(call: Call) -> LimitView:
    """Delete it."""
    asked: api.LimitRequest = call.body
    return await call.parts.runtime.limits.delete(
        asked.limit, reason=asked.reason, actor=call.actor, request_id=call.request_id
    )
