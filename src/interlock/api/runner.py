"""The runner protocol: claim work, and report on it."""

from __future__ import annotations

from typing import Any

from interlock.api.operation import Operation, QueueConfinement
from interlock.errors import (
    BadRequest,
    ConflictingCompletion,
    LeaseExpired,
    LeaseRevoked,
    MessageRefused,
    RequestIdReused,
    TooLarge,
    UnknownLease,
    UnknownWorker,
    WrongRunner,
)
from interlock.wire.access import Role
from interlock.wire.runner import (
    Ack,
    Answers,
    CancelAck,
    ClaimRequest,
    Complete,
    Granted,
    Greeting,
    Heard,
    Heartbeat,
    Messages,
    Release,
)

_HEARD_ERRORS = (LeaseExpired, LeaseRevoked, UnknownLease, WrongRunner, MessageRefused, TooLarge)

_SAID = {
    "token": "j_0123456789ab.1.1.5f1c0d0a9b8e4c7d6a5b4c3d2e1f0a9b",
    "runner_id": "runner-7",
    "sequence": 3,
}

GREET_RUNNER = Operation(
    name="greetRunner",
    request="GET /api/runner",
    summary="Return the settings that a runner needs to claim work: time, durations and limits.",
    role=Role.RUNNER,
    confined=QueueConfinement.NOTHING,
    output=Greeting,
)

LEASE_ATTEMPTS = Operation(
    name="leaseAttempts",
    request="POST /api/runner/lease",
    summary="Claim attempts; waits for some (long poll) while there are none.",
    role=Role.RUNNER,
    confined=QueueConfinement.NAMES,
    input=ClaimRequest,
    output=Granted,
    errors=(BadRequest, RequestIdReused, UnknownWorker),
    bounded=False,
    example={"runner_id": "runner-7", "queues": ["default"], "limit": 1, "wait_s": 1.0},
)


def _message(
    name: str, path: str, kind: type[Any], summary: str, example: dict[str, Any]
) -> Operation[Any, Heard | Answers]:
    """Return the operation of one type of message, one or several at a time."""
    return Operation[Any, Heard | Answers](
        name=name,
        request=f"POST /api/runner/{path}",
        summary=summary,
        role=Role.RUNNER,
        confined=QueueConfinement.LEASED,
        by_claim=path == "log",
        input=(kind, Messages),
        output=(Heard, Answers),
        errors=(*_HEARD_ERRORS, ConflictingCompletion) if kind is Complete else _HEARD_ERRORS,
        example={**_SAID, **example},
        answer_example={"state": "RUNNING", "ttl_s": 120.0, "expires_at": "2026-05-01T12:02:00Z"},
    )


ACK_LEASE = _message("ackLease", "ack", Ack, "Acknowledge a lease: the runner begins.", {})
HEARTBEAT = _message(
    "heartbeat",
    "heartbeat",
    Heartbeat,
    "Renew a lease; the response says whether to stop.",
    {"progress": {"done": 3, "total": 10}},
)
LOG = _message(
    "log",
    "log",
    Heartbeat,
    "Append lines to the log of an attempt.",
    {"log": [["2026-05-01T12:00:00Z", "info", "hi"]]},
)
COMPLETE = _message(
    "complete",
    "complete",
    Complete,
    "Report the result of an attempt.",
    {"outcome": {"outcome": "succeeded", "result": 42}},
)
ACK_CANCEL = _message(
    "ackCancel", "cancel-ack", CancelAck, "Acknowledge a cancel: the runner has stopped.", {}
)
RELEASE = _message(
    "release", "release", Release, "Return an unfinished attempt to the queue.", {"reason": "shutdown"}
)

SAY_MESSAGES = Operation(
    name="sayMessages",
    request="POST /api/runner/messages",
    summary="Send several messages of any type, and return an answer to each.",
    role=Role.RUNNER,
    confined=QueueConfinement.LEASED,
    input=Messages,
    output=Answers,
    errors=(BadRequest,),
    example={"messages": [{"type": "ack", **_SAID}]},
)
