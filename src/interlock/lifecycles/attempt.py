"""An attempt: one try at one shard of a job.

Invariants:

* It ends once. A retry is a new attempt with the next index; this one stays as it ended.
* A success comes only from a completion that was accepted under its live lease.
* Lost is not failed: when the lease expires or is given back the attempt is STALE, its result is never
  accepted, and the user's retries are not touched.
* Once a cancel was requested it can only end CANCELED: a result that arrives after that is kept on
  the record and changes nothing.
* It cannot hang: from LEASED on its lease, its timeout or its cancel deadline ends it.

Why: decisions 0019, 0020 and 0109.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from interlock.lifecycles.durations import deadline
from interlock.lifecycles.owners import Owner
from interlock.machine import (
    STAY,
    Across,
    Always,
    Event,
    Kind,
    Machine,
    Tone,
    command,
    consequence,
    end,
    event,
    ignore,
    message,
    on,
    refuse,
    state,
    timer,
    walk,
)


class AttemptState(StrEnum):
    """States of an attempt."""

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


CREATED, QUEUED, LEASED = AttemptState.CREATED, AttemptState.QUEUED, AttemptState.LEASED
STARTING, RUNNING, UPLOADING = AttemptState.STARTING, AttemptState.RUNNING, AttemptState.UPLOADING
SUCCEEDED, FAILED, STALE = AttemptState.SUCCEEDED, AttemptState.FAILED, AttemptState.STALE
CANCEL_REQUESTED, CANCELED = AttemptState.CANCEL_REQUESTED, AttemptState.CANCELED
TIMED_OUT = AttemptState.TIMED_OUT

UNLEASED = (CREATED, QUEUED)
EXECUTING = (STARTING, RUNNING, UPLOADING)
HELD = (LEASED, *EXECUTING)
"""States with a live lease."""
ENDED = (SUCCEEDED, FAILED, CANCELED, TIMED_OUT, STALE)


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Data of an attempt."""

    accepted: bool | None = None
    """Outcome of the accepted completion: True for success; None when there was none."""
    cancel_requested: bool = False


@event(Kind.CONSEQUENCE, by=Owner.RUNNER)
class Completed(Event):
    """A completion was accepted under the lease."""

    succeeded: bool


publish: Event = command("publish", "The attempt may be dispatched.", by=Owner.ORCHESTRATOR)
grant: Event = command("grant", "A runner is given the lease.", by=Owner.ORCHESTRATOR)
acknowledged: Event = consequence("acknowledged", "The runner has acknowledged the lease.", by=Owner.RUNNER)
heartbeat: Event = message("heartbeat", "The runner reports that it is running.", by=Owner.RUNNER)
upload: Event = message("upload", "The steps are done; logs and artifacts are on their way.", by=Owner.RUNNER)
lease_expired: Event = consequence("lease_expired", "The lease has expired.", by=Owner.CLOCK)
lease_revoked: Event = consequence(
    "lease_revoked", "The lease was revoked or released.", by=Owner.ORCHESTRATOR
)
time_out: Event = timer("time_out", "The attempt has exceeded its timeout.", by=Owner.CLOCK)
cancel: Event = consequence("cancel", "The job or the run is being cancelled.", by=Owner.ORCHESTRATOR)
withdraw: Event = consequence(
    "withdraw", "No runner holds it, so no runner has to stop.", by=Owner.ORCHESTRATOR
)
cancel_acknowledged: Event = consequence(
    "cancel_acknowledged", "The runner has stopped, as asked.", by=Owner.RUNNER
)
force_cancel: Event = timer("force_cancel", "The cancel deadline of the runner has passed.", by=Owner.CLOCK)


def succeeded(attempt: Attempt, completed: Completed) -> bool:
    """the runner reported a failure"""
    return completed.succeeded


def accept(attempt: Attempt, completed: Completed) -> Attempt:
    """Store the reported outcome, also when a cancel overrides it."""
    return msgspec.structs.replace(attempt, accepted=completed.succeeded)


def ask_to_stop(attempt: Attempt, request: object) -> Attempt:
    """Record the request to cancel."""
    return msgspec.structs.replace(attempt, cancel_requested=True)


ATTEMPT_TIMEOUT = deadline(time_out, "attempt_timeout_s", since="the acknowledgement of the lease")
CANCEL_DEADLINE = deadline(force_cancel, "cancel_deadline_s", since="the request")

_ENDED = "the attempt has ended; a retry would be another attempt"
_NO_LEASE = "no runner holds a lease on it"

# fmt: off
ATTEMPT = Machine[AttemptState, Attempt](
    "attempt",
    "One try at one shard of a job.",
    initial=CREATED,
    spine=(CREATED, QUEUED, LEASED, STARTING, RUNNING, UPLOADING, SUCCEEDED),
    stop=(cancel,),
    states=(
        state(CREATED, "Planned; waits for its turn, its needs or its backoff.", turn=Owner.ORCHESTRATOR),
        state(QUEUED, "Ready; waits for a matching runner.", turn=Owner.ORCHESTRATOR, tone=Tone.WAITING),
        state(LEASED, "Leased to a runner that has not acknowledged it yet.", turn=Owner.RUNNER),
        state(STARTING, "The runner prepares.", turn=Owner.RUNNER, within=ATTEMPT_TIMEOUT),
        state(RUNNING, "The steps are executed.", turn=Owner.RUNNER, within=ATTEMPT_TIMEOUT),
        state(UPLOADING, "Logs and artifacts are uploaded.", turn=Owner.RUNNER, within=ATTEMPT_TIMEOUT),
        state(CANCEL_REQUESTED, "Stop requested.", turn=Owner.RUNNER, within=CANCEL_DEADLINE),
        end(SUCCEEDED, "Done, and the completion was accepted."),
        end(FAILED, "The runner reported a failure."),
        end(CANCELED, "Stopped on request: acknowledged, or forced.", tone=Tone.STOPPED),
        end(TIMED_OUT, "Exceeded its timeout."),
        end(STALE, "Lost its lease; later reports of its runner are refused.", tone=Tone.STOPPED),
    ),
    rows=(
        on(publish, CREATED, QUEUED, owner=Owner.ORCHESTRATOR,
           why="Its backoff is over and its needs have succeeded."),
        on(grant, QUEUED, LEASED, owner=Owner.ORCHESTRATOR, why="A matching runner claimed it."),
        on(acknowledged, LEASED, STARTING, owner=Owner.ORCHESTRATOR, why="The runner took the work."),
        on(heartbeat, STARTING, RUNNING, owner=Owner.ORCHESTRATOR, why="The first heartbeat has arrived."),
        on(upload, RUNNING, UPLOADING, owner=Owner.RUNNER,
           why="Only the runner knows that the steps have finished."),
        on(Completed, UPLOADING, SUCCEEDED, owner=Owner.ORCHESTRATOR, when=succeeded, then=accept,
           why="The result was accepted under the live lease."),
        on(Completed, UPLOADING, FAILED, owner=Owner.ORCHESTRATOR, then=accept,
           why="The failure was accepted under the live lease; its class decides about a retry."),
        walk(Completed, STARTING, first=heartbeat, why="A runner that reports a result has been running."),
        walk(Completed, RUNNING, first=upload, why="There was nothing to upload, or it is already there."),

        on(lease_expired, HELD, STALE, owner=Owner.ORCHESTRATOR, why="The outcome of the work is unknown."),
        on(lease_revoked, HELD, STALE, owner=Owner.ORCHESTRATOR,
           why="It was returned to the queue; that does not count as a try."),
        on(time_out, EXECUTING, TIMED_OUT, owner=Owner.ORCHESTRATOR, why="Its timeout has passed."),

        on(cancel, (*UNLEASED, *HELD), CANCEL_REQUESTED, owner=Owner.ORCHESTRATOR, then=ask_to_stop,
           why="Cancelling has two phases: ask, then finalize."),
        on(withdraw, CANCEL_REQUESTED, CANCELED, owner=Owner.ORCHESTRATOR, why="No runner has to be asked."),
        on(cancel_acknowledged, CANCEL_REQUESTED, CANCELED, owner=Owner.ORCHESTRATOR,
           why="The runner has stopped."),
        on(force_cancel, CANCEL_REQUESTED, CANCELED, owner=Owner.ORCHESTRATOR,
           why="An unresponsive runner must not block a cancel."),
        on(Completed, CANCEL_REQUESTED, CANCELED, owner=Owner.ORCHESTRATOR, then=accept,
           why="It ended by itself after the request: the result is stored, and the attempt is CANCELED."),
        on(lease_expired, CANCEL_REQUESTED, CANCELED, owner=Owner.ORCHESTRATOR,
           why="Lost while being cancelled: a cancelled attempt is not retried."),
        on(lease_revoked, CANCEL_REQUESTED, CANCELED, owner=Owner.ORCHESTRATOR,
           why="The right to execute it has ended, so no runner has to stop."),

        on(heartbeat, (RUNNING, UPLOADING, CANCEL_REQUESTED), STAY, owner=Owner.ORCHESTRATOR,
           why="It is still running; the answer carries a pending cancel."),
        walk(upload, STARTING, first=heartbeat, why="A runner that uploads has been running."),
        ignore(upload, (UPLOADING, CANCEL_REQUESTED), why="it is known already, or no longer matters"),

        refuse(heartbeat, (*UNLEASED, LEASED), why="no runner has acknowledged a lease on it"),
        refuse(upload, (*UNLEASED, LEASED), why="no runner has acknowledged a lease on it"),
        refuse(Completed, (*UNLEASED, LEASED), why="no runner has acknowledged a lease on it"),
        refuse(acknowledged, UNLEASED, why=_NO_LEASE),
        ignore(acknowledged, (*EXECUTING, CANCEL_REQUESTED), why="the acknowledgement is known"),
        ignore(lease_expired, UNLEASED, why=_NO_LEASE),
        ignore(lease_revoked, UNLEASED, why=_NO_LEASE),
        ignore(time_out, (*UNLEASED, LEASED), why="its time has not begun"),
        ignore(time_out, CANCEL_REQUESTED, why="it is being stopped; the cancel deadline decides"),
        ignore(cancel, CANCEL_REQUESTED, why="a cancel was requested before; the deadline does not move"),
        refuse(withdraw, (*UNLEASED, *HELD), why="no cancel was requested"),
        refuse(cancel_acknowledged, (*UNLEASED, *HELD), why="no cancel was requested"),
        ignore(force_cancel, (*UNLEASED, *HELD), why="no cancel is under way"),

        *(refuse(each, ENDED, why=_ENDED) for each in (acknowledged, heartbeat, upload, Completed)),
        *(ignore(late, ENDED, why=_ENDED) for late in
          (lease_expired, lease_revoked, time_out, cancel, withdraw, cancel_acknowledged, force_cancel)),
    ),
    invariants=(
        Always(
            "a success comes only from an accepted completion",
            lambda state, attempt: state is not SUCCEEDED or attempt.accepted is True,
        ),
        Always(
            "it is cancelled only after a request",
            lambda state, attempt: state not in (CANCEL_REQUESTED, CANCELED) or attempt.cancel_requested,
        ),
        Across(
            "after a cancel request it can only end as CANCELED",
            lambda _, before, after, __: not before.cancel_requested or after in (CANCEL_REQUESTED, CANCELED),
        ),
    ),
)
# fmt: on
