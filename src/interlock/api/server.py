"""The server itself: figures, overview, state for admins, health, readiness and metrics."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from interlock.api.messages import Input, Output, Reason
from interlock.api.operation import Operation, Parameter, QueueConfinement
from interlock.errors import NotReady, StoreUnavailable, UnknownSession
from interlock.store.contract import ServerConnections
from interlock.wire.access import (
    Role,
    SessionView,
)
from interlock.wire.figures import LONGEST_MIN, FiguresView, LoopHealth, OverviewView
from interlock.wire.runs import FailedReport

_SESSION = {"session_id": Parameter("The id of a session.")}


class Alive(Output, frozen=True, kw_only=True):
    """The process is alive."""

    status: Literal["ok"]


class LoopView(Output, frozen=True, kw_only=True):
    """State of a loop."""

    name: str
    rounds: int
    failures_in_a_row: int
    last_success_at: datetime | None = None


class Readiness(Output, frozen=True, kw_only=True):
    """The server can do its work."""

    status: Literal["ready"]
    store_at: datetime
    """Time of the store."""
    loops: tuple[LoopView, ...]


class FiguresQuery(Input, frozen=True, kw_only=True):
    """Period and queue of figures."""

    minutes: Annotated[
        int,
        Meta(
            ge=1,
            le=LONGEST_MIN,
            description="Length of the period until now, in minutes (10080 is seven days).",
        ),
    ] = 60
    queue: Annotated[str, Meta(max_length=64, description="Only this queue.")] = ""
    task: Annotated[str, Meta(max_length=200, description="Only this task.")] = ""


class ServerView(msgspec.Struct, frozen=True, kw_only=True):
    """A server process."""

    version: str
    python: str
    at: datetime
    """Time of the store."""
    started_at: datetime | None
    memory_bytes: int | None
    """Memory of the process; null where the operating system does not tell."""
    connections: int
    max_connections: int
    waiting_runners: int
    """Runners that wait for work."""
    streams: int
    """Live streams that are open."""
    tokens_required: bool
    counted_until: datetime | None
    """Time up to which the journal has been counted for figures; null when no server has begun to count."""
    loops: tuple[LoopHealth, ...]


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """Retention of ended records of a kind."""

    kind: str
    seconds: float
    states: tuple[str, ...]
    """Terminal states to which it applies."""
    queue: str | None = None
    """The queue, if it has a retention of its own."""


class StoreView(msgspec.Struct, frozen=True, kw_only=True):
    """The store of a server, and its retention."""

    url: str
    """Address without its password."""
    server: str
    schema_version: int
    wanted_version: int
    durable: bool
    durability: str
    shared: bool
    """Several hosts may use the store at once."""
    size_bytes: int | None
    records: dict[str, dict[str, int]]
    """Number of records by kind and state, counted up to `cap`."""
    entries: int
    oldest_entry_at: datetime | None
    cap: int | None
    connections: ServerConnections | None
    retention: tuple[Kept, ...]
    pruned: int
    """Records that the last round of retention has removed."""


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook that starts runs."""

    name: str
    path: str
    keys: int
    """Number of secrets that this server has for it; without one it is refused."""


class Receiver(msgspec.Struct, frozen=True, kw_only=True):
    """Receiver of reports about runs."""

    name: str
    kind: str
    to: str
    """Host; the rest of the address may be a secret."""
    able: bool
    """Whether this server has the secret that it needs."""
    words: tuple[str, ...] = ()


class WebhooksView(msgspec.Struct, frozen=True, kw_only=True):
    """Webhooks in both directions, as the project file of this server names them."""

    incoming: tuple[Incoming, ...]
    receivers: tuple[Receiver, ...]
    failing: tuple[FailedReport, ...]
    """Deliveries that have failed and are retried, or were given up; the newest."""


class OpenSessions(msgspec.Struct, frozen=True, kw_only=True):
    """Browsers that have signed in, the newest first."""

    sessions: tuple[SessionView, ...]
    own: str
    """The session of this request; empty where it came with a token."""


class RevokeSession(Input, frozen=True, kw_only=True):
    """Reason why a session is ended."""

    reason: Reason = ""


GET_FIGURES = Operation(
    name="getFigures",
    request="GET /api/figures",
    summary="Show figures of jobs over time: counts, durations and backlog.",
    role=Role.VIEWER,
    confined=QueueConfinement.HIDES,
    input=FiguresQuery,
    output=FiguresView,
)

GET_OVERVIEW = Operation(
    name="getOverview",
    request="GET /api/overview",
    summary="List current problems with a remedy for each, and a few live numbers.",
    role=Role.VIEWER,
    confined=QueueConfinement.HIDES,
    output=OverviewView,
)

SHOW_SERVER = Operation(
    name="showServer",
    request="GET /api/server",
    summary="Show the status of this server: loops, connections and memory.",
    role=Role.ADMIN,
    output=ServerView,
)

SHOW_STORE = Operation(
    name="showStore",
    request="GET /api/server/store",
    summary="Show the store: its kind, schema and size, and how long ended records are kept.",
    role=Role.ADMIN,
    output=StoreView,
    errors=(StoreUnavailable,),
)

SHOW_WEBHOOKS = Operation(
    name="showWebhooks",
    request="GET /api/server/webhooks",
    summary="Show which webhooks are configured, and which deliveries fail.",
    role=Role.ADMIN,
    output=WebhooksView,
)

LIST_SESSIONS = Operation(
    name="listSessions",
    request="GET /api/server/sessions",
    summary="List the browsers that have signed in.",
    role=Role.ADMIN,
    output=OpenSessions,
)

REVOKE_SESSION = Operation(
    name="revokeSession",
    request="POST /api/server/sessions/{session_id}/revoke",
    summary="Sign a browser out; other servers notice within seconds.",
    role=Role.ADMIN,
    parameters=_SESSION,
    input=RevokeSession,
    output=SessionView,
    errors=(UnknownSession,),
    example={"reason": "the laptop was lost"},
)

HEALTHZ = Operation(
    name="healthz",
    request="GET /healthz",
    summary="Report that the process is up (liveness).",
    role=None,
    output=Alive,
    free=True,
)

READYZ = Operation(
    name="readyz",
    request="GET /readyz",
    summary="Report whether the server can serve requests (readiness).",
    role=None,
    output=Readiness,
    errors=(NotReady,),
    free=True,
)

METRICS = Operation(
    name="metrics",
    request="GET /metrics",
    summary="Return metrics in the Prometheus format.",
    role=Role.VIEWER,
    media="text/plain",
)
