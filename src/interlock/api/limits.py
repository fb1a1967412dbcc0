"""Limits: list, show, declare and delete them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from interlock.api.messages import Input, Reason, RequestId
from interlock.api.operation import Operation
from interlock.errors import InvalidLimit, RequestIdReused, UnknownLimit
from interlock.wire.access import Role
from interlock.wire.limits import LimitList, LimitSpec, LimitView

Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=64,
        description="A key such as `vendor-x`, a pattern such as `tenant:*`, `queue:NAME` or `task:NAME`.",
    ),
]


class LimitQuery(Input, frozen=True, kw_only=True):
    """The limit to show."""

    limit: Name


class NewLimit(Input, frozen=True, kw_only=True):
    """A limit to declare, or to change."""

    limit: Name
    spec: LimitSpec
    source: Annotated[str, Meta(max_length=60)] = "api"
    request_id: RequestId | None = None


class LimitRequest(Input, frozen=True, kw_only=True):
    """The limit to delete, and why."""

    limit: Name
    reason: Reason = ""
    request_id: RequestId | None = None


LIST_LIMITS = Operation(
    name="listLimits",
    request="GET /api/limits",
    summary="List limits: slots in use and jobs that wait, by key.",
    role=Role.VIEWER,
    output=LimitList,
)

GET_LIMIT = Operation(
    name="getLimit",
    request="GET /api/limits/show",
    summary="Show a limit: which jobs hold its slots, and how many wait.",
    role=Role.VIEWER,
    input=LimitQuery,
    output=LimitView,
    errors=(UnknownLimit,),
)

SET_LIMIT = Operation(
    name="setLimit",
    request="POST /api/limits",
    summary="Declare a limit, or change it; running jobs continue.",
    role=Role.OPERATOR,
    input=NewLimit,
    output=LimitView,
    errors=(InvalidLimit, RequestIdReused),
    example={"limit": "vendor-x", "spec": {"max": 5}, "request_id": "vendor-x-5"},
)

DELETE_LIMIT = Operation(
    name="deleteLimit",
    request="POST /api/limits/delete",
    summary="Delete a limit; jobs that wait for it are admitted.",
    role=Role.OPERATOR,
    input=LimitRequest,
    output=LimitView,
    errors=(UnknownLimit, RequestIdReused),
    example={"limit": "vendor-x", "reason": "the contract allows any number", "request_id": "vendor-x-off"},
)
