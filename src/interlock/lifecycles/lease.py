"""A lease: the exclusive right to execute an attempt.

Invariants:

* At most one lease of an attempt is live (GRANTED or ACTIVE); the store enforces this as a constraint.
* Only messages of its own runner are accepted, and only while it is live by the store's clock. Expired but
  not yet swept is expired.
* Once it has ended it never becomes live again, and messages under it change nothing.
* It cannot be held for ever: unacknowledged it ends with the ack window, acknowledged it ends one
  time to live after its last heartbeat.

Its id is the fencing token and a secret; the store keeps only a hash of it.

Why: decisions 0024, 0031 and 0117.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from interlock.lifecycles.durations import Timed, deadline
from interlock.lifecycles.owners import Owner
from interlock.machine import (
    STAY,
    Always,
    Event,
    Kind,
    Machine,
    Tone,
    consequence,
    end,
    event,
    ignore,
    on,
    refuse,
    state,
)


class LeaseState(StrEnum):
    """States of a lease."""

    GRANTED = "GRANTED"
    ACTIVE = "ACTIVE"
    EXPIRED = "EXPIRED"
    REVOKED = "REVOKED"
    COMPLETED = "COMPLETED"
    CANCELED = "CANCELED"


GRANTED, ACTIVE = LeaseState.GRANTED, LeaseState.ACTIVE
EXPIRED, REVOKED = LeaseState.EXPIRED, LeaseState.REVOKED
COMPLETED, CANCELED = LeaseState.COMPLETED, LeaseState.CANCELED
LIVE = (GRANTED, ACTIVE)
DEAD = (EXPIRED, REVOKED, COMPLETED, CANCELED)


class Lease(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Data of a lease."""

    runner_id: str
    expires_at: datetime
    cancel_requested: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseMessage(Timed):
    """Base of messages under a lease."""

    runner_id: str


@event(Kind.MESSAGE, by=Owner.RUNNER)
class Ack(LeaseMessage):
    """The runner accepts the work."""

    ttl_s: float


@event(Kind.MESSAGE, by=Owner.RUNNER)
class Heartbeat(LeaseMessage):
    """The runner is alive and executes the attempt."""

    ttl_s: float


@event(Kind.MESSAGE, by=Owner.RUNNER)
class Complete(LeaseMessage):
    """The attempt has ended with this outcome."""


@event(Kind.MESSAGE, by=Owner.RUNNER)
class CancelAck(LeaseMessage):
    """The runner has stopped, as requested."""


@event(Kind.MESSAGE, by=Owner.RUNNER)
class Release(LeaseMessage):
    """The runner gives the work back unfinished, because it shuts down."""


@event(Kind.TIMER, by=Owner.CLOCK)
class Expire(Timed):
    """The ack window or the time to live has passed."""


request_cancel: Event = consequence(
    "request_cancel", "The attempt is being cancelled.", by=Owner.ORCHESTRATOR
)
holder_lost: Event = consequence("holder_lost", "Its runner is known to be dead.", by=Owner.SUPERVISOR)
revoke: Event = consequence("revoke", "The orchestrator revokes the lease.", by=Owner.ORCHESTRATOR)


def from_its_runner(lease: Lease, message: LeaseMessage) -> bool:
    """only the runner that the lease was granted to may send messages under it"""
    return message.runner_id == lease.runner_id


def in_time(lease: Lease, message: LeaseMessage) -> bool:
    """by the store's clock the lease has expired, swept or not"""
    return message.at < lease.expires_at


def run_out(lease: Lease, fired: Expire) -> bool:
    """the lease was renewed after this timer was set"""
    return fired.at >= lease.expires_at


def cancel_was_requested(lease: Lease, message: CancelAck) -> bool:
    """no cancel was requested"""
    return lease.cancel_requested


def renew(lease: Lease, message: Ack | Heartbeat) -> Lease:
    """Extend the lease by its time to live; a late message never shortens it."""
    until = message.at + timedelta(seconds=message.ttl_s)
    return msgspec.structs.replace(lease, expires_at=max(until, lease.expires_at))


def note_cancel(lease: Lease, request: object) -> Lease:
    """Record the request to cancel, so that its acknowledgement is accepted."""
    return msgspec.structs.replace(lease, cancel_requested=True)


ACK_WINDOW = deadline(Expire, "ack_window_s", since="the grant")
TIME_TO_LIVE = deadline(Expire, "lease_ttl_s", since="the last heartbeat")

_STALE = "the lease has ended; messages under it are stale"
_ACK_FIRST = "the lease was granted but not acknowledged; acknowledge it first"

# fmt: off
LEASE = Machine[LeaseState, Lease](
    "lease",
    "The exclusive right to execute an attempt. Its id is the fencing token and a secret.",
    initial=GRANTED,
    spine=(GRANTED, ACTIVE, COMPLETED),
    stop=(Expire, revoke),
    states=(
        state(GRANTED, "Issued to a runner; not acknowledged yet.", turn=Owner.RUNNER, within=ACK_WINDOW),
        state(ACTIVE, "Acknowledged; heartbeats keep it alive.", turn=Owner.RUNNER, within=TIME_TO_LIVE),
        end(COMPLETED, "Ended by a completion that was accepted."),
        end(CANCELED, "Ended by the runner's acknowledgement of a cancel.", tone=Tone.STOPPED),
        end(EXPIRED, "No heartbeat came in time, or the runner is dead; it has lost the work."),
        end(REVOKED, "Revoked, or released unfinished.", tone=Tone.STOPPED),
    ),
    rows=(
        on(Ack, GRANTED, ACTIVE, owner=Owner.ORCHESTRATOR, when=(from_its_runner, in_time), then=renew,
           why="The runner has the work and will send heartbeats."),
        on(Complete, ACTIVE, COMPLETED, owner=Owner.ORCHESTRATOR, when=(from_its_runner, in_time),
           why="The attempt has a result; no further message is accepted under this lease."),
        on(CancelAck, ACTIVE, CANCELED, owner=Owner.ORCHESTRATOR,
           when=(from_its_runner, in_time, cancel_was_requested),
           why="The runner has stopped, as it was asked to."),
        on(Expire, LIVE, EXPIRED, owner=Owner.ORCHESTRATOR, when=run_out,
           why="The runner sent no heartbeat; another one may take the work."),
        on(holder_lost, LIVE, EXPIRED, owner=Owner.ORCHESTRATOR,
           why="The runner is dead; waiting for the lease to expire would waste time."),
        on(Release, LIVE, REVOKED, owner=Owner.ORCHESTRATOR, when=(from_its_runner, in_time),
           why="The runner is shutting down and returns the work."),
        on(revoke, LIVE, REVOKED, owner=Owner.ORCHESTRATOR,
           why="The attempt timed out or was cancelled by force, or its worker was terminated."),

        on(Heartbeat, ACTIVE, STAY, owner=Owner.ORCHESTRATOR, when=(from_its_runner, in_time), then=renew,
           arms=TIME_TO_LIVE, why="The lease is extended by its time to live."),
        on(request_cancel, ACTIVE, STAY, owner=Owner.ORCHESTRATOR, then=note_cancel,
           why="The answer to the next heartbeat carries the cancel, which the runner may then acknowledge."),

        ignore(Ack, ACTIVE, why="it was acknowledged before; the message came twice"),
        refuse(Heartbeat, GRANTED, why=_ACK_FIRST),
        refuse(Complete, GRANTED, why=_ACK_FIRST),
        refuse(CancelAck, GRANTED, why=_ACK_FIRST),
        refuse(request_cancel, GRANTED, why="no runner has begun, so none has to be asked; it is revoked"),
        *(refuse(each, DEAD, why=_STALE) for each in (Ack, Heartbeat, Complete, CancelAck, Release)),
        ignore(request_cancel, DEAD, why="there is no runner left to ask"),
        ignore(revoke, DEAD, why="the right has already ended"),
        ignore(holder_lost, DEAD, why="the right has already ended"),
        ignore(Expire, DEAD, why="the lease ended before its timer fired"),
    ),
    invariants=(
        Always(
            "a cancel is acknowledged only after it was requested",
            lambda state, lease: state is not CANCELED or lease.cancel_requested,
        ),
    ),
)
# fmt: on
