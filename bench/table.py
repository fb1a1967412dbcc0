"""The attempt machine as plain data: twelve states and their edges, written once for everybody.

Every library under comparison builds its machine from `EDGES`, so that none has an easier table.
It is the attempt of the specification, cut down to what all three libraries can say without
guards: the outcome of a completion is two events, and what ends "at once" takes two events.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

NAME = "attempt"


class Attempt(StrEnum):
    """The states of one try at a job."""

    CREATED = "CREATED"
    QUEUED = "QUEUED"
    LEASED = "LEASED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    UPLOADING = "UPLOADING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCEL_REQUESTED = "CANCEL_REQUESTED"
    CANCELED = "CANCELED"
    TIMED_OUT = "TIMED_OUT"
    STALE = "STALE"


class Edge(NamedTuple):
    """An event moves the attempt from one state to another, and somebody answers for it."""

    event: str
    source: Attempt
    target: Attempt
    owner: str


_S = Attempt
_LEASED = (_S.LEASED, _S.STARTING, _S.RUNNING, _S.UPLOADING)

_RULES: tuple[tuple[str, str, tuple[Attempt, ...], Attempt], ...] = (
    ("enqueue", "orchestrator", (_S.CREATED,), _S.QUEUED),
    ("lease", "orchestrator", (_S.QUEUED,), _S.LEASED),
    ("ack_lease", "orchestrator", (_S.LEASED,), _S.STARTING),
    ("heartbeat", "orchestrator", (_S.STARTING,), _S.RUNNING),
    ("upload", "runner", (_S.RUNNING,), _S.UPLOADING),
    ("succeed", "orchestrator", (_S.UPLOADING,), _S.SUCCEEDED),
    ("fail", "orchestrator", (_S.UPLOADING,), _S.FAILED),
    ("expire", "orchestrator", _LEASED, _S.STALE),
    ("time_out", "orchestrator", (_S.STARTING, _S.RUNNING, _S.UPLOADING), _S.TIMED_OUT),
    ("cancel", "orchestrator", (_S.CREATED, _S.QUEUED, *_LEASED), _S.CANCEL_REQUESTED),
    ("cancel_ack", "orchestrator", (_S.CANCEL_REQUESTED,), _S.CANCELED),
    ("cancel_overdue", "orchestrator", (_S.CANCEL_REQUESTED,), _S.CANCELED),
    # Whatever else is heard of an attempt that is being cancelled, it ends cancelled.
    ("succeed", "orchestrator", (_S.CANCEL_REQUESTED,), _S.CANCELED),
    ("fail", "orchestrator", (_S.CANCEL_REQUESTED,), _S.CANCELED),
    ("expire", "orchestrator", (_S.CANCEL_REQUESTED,), _S.CANCELED),
)

EDGES = tuple(
    Edge(event, source, target, owner) for event, owner, sources, target in _RULES for source in sources
)
EVENTS = tuple(dict.fromkeys(edge.event for edge in EDGES))
OWNERS = {edge.event: edge.owner for edge in EDGES}
TARGETS = {(edge.source, edge.event): edge.target for edge in EDGES}

INITIAL = Attempt.CREATED
FINAL = tuple(state for state in Attempt if not any(edge.source is state for edge in EDGES))

HAPPY_PATH = ("enqueue", "lease", "ack_lease", "heartbeat", "upload", "succeed")
"""The walk that is timed, from the initial state to SUCCEEDED."""

ILLEGAL = "succeed"
"""An event that the initial state does not accept."""
