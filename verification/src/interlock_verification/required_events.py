"""Events that must occur in the model and in worlds, so that no claim holds vacuously."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from interlock.lifecycles import attempt, job
from interlock.systems.orchestrator.body import AttemptBody
from interlock.systems.orchestrator.failures import FailureClass
from interlock_verification.claims import DecodedJob

LATE = "a late report is refused"
TWICE = "a repeated report gets the same answer"
ACKNOWLEDGED = "a cancel is acknowledged by the runner"
LOOKED_AGAIN = "one of two concurrent decisions conflicts and is repeated"
TOO_LATE = "a commit after the end of the lease is decided again"
REPEATED = "a repeated request is executed once"


def _ended(seen: DecodedJob, *states: attempt.AttemptState) -> list[AttemptBody]:
    return [one for one in seen.body.attempts if one.state in states]


def _lost(seen: DecodedJob) -> list[AttemptBody]:
    return [o for o in seen.body.attempts if o.failure and o.failure.failure_class is FailureClass.LOST]


REQUIRED_EVENTS: Mapping[str, Callable[[DecodedJob], bool]] = {
    "a lost attempt is retried and the job completes": lambda seen: (
        seen.state is job.COMPLETED and bool(_lost(seen))
    ),
    "a job that is lost too often fails": lambda seen: seen.state is job.FAILED and bool(_lost(seen)),
    "a failure is retried and the job completes": lambda seen: (
        seen.state is job.COMPLETED and bool(_ended(seen, attempt.FAILED))
    ),
    "a job fails when no try is left": lambda seen: (
        seen.state is job.FAILED and bool(_ended(seen, attempt.FAILED, attempt.TIMED_OUT))
    ),
    "released work is executed by another attempt": lambda seen: (
        seen.state is job.COMPLETED and any(not o.failure for o in _ended(seen, attempt.STALE))
    ),
    "a result that arrives under a cancel is stored": lambda seen: any(
        one.data.accepted for one in _ended(seen, attempt.CANCELED)
    ),
    "an attempt is timed out": lambda seen: bool(_ended(seen, attempt.TIMED_OUT)),
    "a job is canceled by its timeout": lambda seen: (
        seen.state is job.CANCELED and seen.body.data.stop_reason == "timeout"
    ),
    "a job expires before a worker starts it": lambda seen: (
        seen.body.failure is not None and seen.body.failure.failure_class is FailureClass.EXPIRED
    ),
    "a snoozed job completes": lambda seen: (
        seen.state is job.COMPLETED and any(o.snoozed_until for o in _ended(seen, attempt.STALE))
    ),
    "a cancel is forced": lambda seen: any(one.forced for one in seen.body.attempts),
    "one shard fails and the others are stopped": lambda seen: (
        seen.state is job.FAILED and bool(_ended(seen, attempt.CANCELED, attempt.CANCEL_REQUESTED))
    ),
}
