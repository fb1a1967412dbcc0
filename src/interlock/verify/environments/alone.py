"""What the tables promise by themselves, whoever asks: each put to every order of its events.

The worlds of jobs and runs ask the tables only what the deciders ask them. A decider may be careful
where the table is careful as well; then a hole in the table would show nowhere, until somebody
writes another decider. So the promises at the head of each table are asked of the table alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from interlock.lifecycles import attempt, job, lease
from interlock.lifecycles.job import Job
from interlock.lifecycles.lease import Lease
from interlock.verify.environments.alone_elsewhere import ALONE_ELSEWHERE
from interlock.verify.lifecycles import Answer, Here, Lifecycle, must

AT = datetime(2030, 1, 1, tzinfo=UTC)
END = AT + timedelta(seconds=30)
MINE, OTHER = "mine", "other"


# The lease


def _said(name: str) -> tuple[lease.RunnerMessage, ...]:
    kind: Any = getattr(lease, name)
    more = {"ttl_s": 30.0} if name in ("Ack", "Heartbeat") else {}
    return tuple(kind(at=at, runner_id=who, **more) for who in (MINE, OTHER) for at in (AT, END))


def _own_and_in_time(before: Here, said: Any) -> bool:
    return bool(said.runner_id == before.data.runner_id and said.at < before.data.expires_at)


def _stranger_or_late(before: Here, said: Any, after: Here | None) -> bool:
    if not isinstance(said, lease.RunnerMessage):
        return True
    return after is None or _own_and_in_time(before, said)


def _heard(kind: Any, sources: tuple[Any, ...], target: Any) -> Any:
    def holds(before: Here, said: Any, after: Here | None) -> bool:
        if type(said) is not kind or before.state not in sources or not _own_and_in_time(before, said):
            return True
        return after is not None and after.state is target

    return holds


def _expires_in_time(before: Here, said: Any, after: Here | None) -> bool:
    if not isinstance(said, lease.Expire) or before.state not in lease.LIVE:
        return True
    if said.at < before.data.expires_at:
        return after is None
    return after is not None and after.state is lease.EXPIRED


def _never_shortened(before: Here, _: Any, after: Here | None) -> bool:
    return after is None or after.data.expires_at >= before.data.expires_at


def _stops_when_asked(before: Here, said: Any, after: Here | None) -> bool:
    if not isinstance(said, lease.CancelAck) or before.state is not lease.ACTIVE:
        return True
    if not before.data.cancel_requested:
        return after is None
    return after is None or after.state is lease.CANCELED


LEASE_ALONE = Lifecycle(
    data=Lease(runner_id=MINE, expires_at=END),
    events=(
        *(said for name in ("Ack", "Heartbeat", "Complete", "CancelAck", "Release") for said in _said(name)),
        lease.Expire(at=AT),
        lease.Expire(at=END),
        lease.Expire(at=END + timedelta(seconds=60)),
    ),
    answers=(
        Answer("only its own runner is heard, and only in time", _stranger_or_late),
        Answer("its runner is heard: acknowledged", _heard(lease.Ack, (lease.GRANTED,), lease.ACTIVE)),
        Answer("its runner is heard: at work", _heard(lease.Heartbeat, (lease.ACTIVE,), lease.ACTIVE)),
        Answer("its runner is heard: done", _heard(lease.Complete, (lease.ACTIVE,), lease.COMPLETED)),
        Answer("its runner is heard: given back", _heard(lease.Release, lease.LIVE, lease.REVOKED)),
        Answer("it expires when its time is up, and not before", _expires_in_time),
        Answer("it is never shortened", _never_shortened),
        Answer("a cancel is acknowledged only if asked for", _stops_when_asked),
        Answer("who is dead is lost at once", must(lease.holder_lost, lease.LIVE, lease.EXPIRED)),
        Answer("the right can be taken away", must(lease.revoke, lease.LIVE, lease.REVOKED)),
        Answer("a cancel is passed on", must(lease.request_cancel, (lease.ACTIVE,), lease.ACTIVE)),
    ),
)


# The attempt

_HELD = (*attempt.HELD, attempt.CANCEL_REQUESTED)
_OPEN = (*attempt.UNLEASED, *attempt.HELD)
_ENDINGS = (attempt.withdraw, attempt.cancel_acknowledged, attempt.force_cancel)


def _lost(before: Here, said: Any, after: Here | None) -> bool:
    if said.name not in ("lease_expired", "lease_revoked") or before.state not in _HELD:
        return True
    wanted = attempt.CANCELED if before.data.cancel_requested else attempt.STALE
    return after is not None and after.state is wanted


def _as_reported(before: Here, said: Any, after: Here | None) -> bool:
    if not isinstance(said, attempt.Completed):
        return True
    if before.state not in (*attempt.EXECUTING, attempt.CANCEL_REQUESTED):
        return after is None
    wanted = attempt.SUCCEEDED if said.succeeded else attempt.FAILED
    wanted = attempt.CANCELED if before.data.cancel_requested else wanted
    return after is not None and (after.state, after.data.accepted) == (wanted, said.succeeded)


def _life_ends_nothing(_: Here, said: Any, after: Here | None) -> bool:
    if said.name not in ("heartbeat", "upload", "acknowledged"):
        return True
    return after is None or after.state not in attempt.ENDED


ATTEMPT_ALONE = Lifecycle(
    data=attempt.Attempt(),
    events=(attempt.Completed(succeeded=True), attempt.Completed(succeeded=False)),
    answers=(
        Answer("who loses its lease is STALE, or under a cancel CANCELED", _lost),
        Answer("it ends as reported, or under a cancel CANCELED", _as_reported),
        Answer("a sign of life ends nothing", _life_ends_nothing),
        Answer(
            "a sign of life is noted",
            must(attempt.heartbeat, (attempt.STARTING, attempt.RUNNING), attempt.RUNNING),
        ),
        Answer("the upload is noted", must(attempt.upload, attempt.EXECUTING[:2], attempt.UPLOADING)),
        Answer(
            "who uploads or stops is still alive",
            lambda before, said, after: (
                said.name != "heartbeat"
                or before.state not in (attempt.UPLOADING, attempt.CANCEL_REQUESTED)
                or (after is not None and after.state is before.state)
            ),
        ),
        Answer("it has its time and no more", must(attempt.time_out, attempt.EXECUTING, attempt.TIMED_OUT)),
        Answer("a cancel is heeded", must(attempt.cancel, _OPEN, attempt.CANCEL_REQUESTED)),
        *(
            Answer(
                f"a cancel ends by {event.name}", must(event, (attempt.CANCEL_REQUESTED,), attempt.CANCELED)
            )
            for event in _ENDINGS
        ),
    ),
)


# The job


def _stopped(before: Here, said: Any, after: Here | None) -> bool:
    """Asked to stop: at once where nothing is active, and otherwise remembered."""
    if not isinstance(said, job.Stop) or before.state in job.ENDED:
        return True
    waiting = before.state in job.WAITING
    if isinstance(said, job.Timeout) and waiting:
        return after is None
    if after is None or not after.data.stop_reason:
        return False
    return after.state is (job.CANCELED if waiting or not said.still_active else job.RUNNING)


JOB_ALONE = Lifecycle(
    data=Job(created_at=AT),
    events=(
        job.Validate(at=AT),
        job.Reject(at=AT),
        job.AllocateResources(at=AT),
        job.Success(at=AT),
        job.Error(at=AT),
        *(stop(at=AT, still_active=active) for stop in (job.Cancel, job.Timeout) for active in (0, 1)),
    ),
    answers=(
        Answer("asked to stop it does: at once, or when the last attempt has ended", _stopped),
        Answer("what is impossible fails", must(job.Reject, (job.SUBMITTED,), job.FAILED)),
        Answer("what is possible waits", must(job.Validate, (job.SUBMITTED,), job.PENDING)),
        Answer("it starts with its first attempt", must(job.AllocateResources, (job.PENDING,), job.RUNNING)),
        Answer("it completes", must(job.Success, (job.RUNNING,), job.COMPLETED)),
        Answer("it fails", must(job.Error, (job.RUNNING,), job.FAILED)),
    ),
)

ALONE: Mapping[str, Lifecycle] = {
    "job": JOB_ALONE,
    "attempt": ATTEMPT_ALONE,
    "lease": LEASE_ALONE,
    **ALONE_ELSEWHERE,
}
