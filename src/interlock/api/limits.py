"""Limits: list, show, declare and delete them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from interlock.api.messages import MAX_PAGE, Cursor, Input, Limit, Reason, RequestId
from interlock.api.operation import Link, Operation
from interlock.errors import InvalidLimit, RequestIdReused, UnknownLimit
from interlock.wire.access import Role
from interlock.wire.limits import KeyPage, LimitList, LimitSpec, LimitView

Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=64,
        description="A key such as `vendor-x`, a pattern such as `tenant:*`, `queue:NAME` or `task:NAME`.",
    ),
]


class LimitsQuery(Input, frozen=True, kw_only=True):
    """Page of the list of limits."""

    keys: Annotated[int, Meta(ge=0, le=100, description="Maximum number of keys shown of each limit.")] = 100
    limit: Limit = MAX_PAGE
    cursor: Cursor = ""


class LimitQuery(Input, frozen=True, kw_only=True):
    """The limit to show, or one key of a pattern."""

    limit: Name


class KeysQuery(Input, frozen=True, kw_only=True):
    """Page of the keys of a limit."""

    limit: Name
    state: Annotated[
        Literal["", "held", "full"], Meta(description="`held`: keys in use; `full`: keys that jobs wait for.")
    ] = ""
    count: Annotated[int, Meta(ge=1, le=100, description="Maximum number of results.")] = 50
    cursor: Cursor = ""


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
    input=LimitsQuery,
    output=LimitList,
    links=(Link("listLimits", "cursor", "$response.body#/cursor"),),
)

GET_LIMIT = Operation(
    name="getLimit",
    request="GET /api/limits/show",
    summary="Show a limit or one key of it: which jobs hold its slots, and how many wait.",
    role=Role.VIEWER,
    input=LimitQuery,
    output=LimitView,
    errors=(UnknownLimit,),
)

LIST_LIMIT_KEYS = Operation(
    name="listLimitKeys",
    request="GET /api/limits/keys",
    summary="List the keys of a limit that are in use: slots in use and jobs that wait.",
    role=Role.VIEWER,
    input=KeysQuery,
    output=KeyPage,
    errors=(UnknownLimit,),
    links=(Link("listLimitKeys", "cursor", "$response.body#/cursor"),),
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
