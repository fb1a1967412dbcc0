"""What must hold of every job at every moment, whatever has happened to it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from interlock.lifecycles import attempt, job, lease
from interlock.lifecycles.attempt import ATTEMPT
from interlock.lifecycles.job import JOB, JobState
from interlock.lifecycles.lease import LEASE
from interlock.store.records import Record
from interlock.systems.orchestrator.body import AttemptBody, JobBody, decode_body
from interlock.systems.orchestrator.failures import DEFAULT_LOSSES, DEFAULT_RETRIES


def wrongs_of(record: Record, *, releases: int) -> list[str]:
    """Everything that is wrong with a job; `releases` is how often its work was given back."""
    body, state = decode_body(record.body), JobState(record.state)
    return [
        *JOB.broken(state, body.data),
        *(wrong for one in body.attempts for wrong in _wrong_attempt(one)),
        *_wrong_shards(state, body),
        *_wrong_end(record, state, body),
        *_wrong_columns(record, state, body),
        *_too_many(body, releases),
    ]


def _wrong_attempt(one: AttemptBody) -> Iterator[str]:
    yield from (f"{one.name}: {claim}" for claim in ATTEMPT.broken(one.state, one.data))
    held = one.lease
    if held is not None:
        yield from (f"the lease of {one.name}: {claim}" for claim in LEASE.broken(held.state, held.data))
    live = held is not None and held.state in lease.LIVE
    if one.state is attempt.LEASED and (held is None or held.state is not lease.GRANTED):
        yield f"{one.name} is LEASED without a lease that is GRANTED"
    if one.state in (*attempt.EXECUTING, attempt.CANCEL_REQUESTED) and not live:
        yield f"{one.name} is {one.state} and nobody holds it"
    if one.state in (*attempt.UNLEASED, *attempt.ENDED) and live:
        yield f"{one.name} is {one.state} and has a live lease"
    if one.state in attempt.UNLEASED and one.ready_at is None and not one.prompt:
        yield f"{one.name} is {one.state} and waits for nothing"
    if (one.state in attempt.ENDED) != (one.ended_at is not None):
        yield f"{one.name} is {one.state} and ended_at is {one.ended_at}"
    timed = ATTEMPT.table.entry(one.state).within is not None
    if timed != (one.timer_at is not None):
        yield f"{one.name} is {one.state} and its timer is {one.timer_at}"


def _wrong_shards(state: JobState, body: JobBody) -> Iterator[str]:
    shards = range(1, body.data.worker_count + 1)
    for shard in shards:
        mine = [one for one in body.attempts if one.shard == shard]
        live = [one for one in mine if one.lease and one.lease.state in lease.LIVE]
        if len(live) > 1:
            yield f"shard {shard} has {len(live)} live leases"
        last = mine[-1].index if mine else 0
        if [one.index for one in mine] != list(range(last - len(mine) + 1, last + 1)):
            yield f"the attempts at shard {shard} are numbered {[one.index for one in mine]}"
        open_ones = [one for one in mine if one.state not in attempt.ENDED]
        if len(open_ones) > 1 or (open_ones and open_ones[0] is not mine[-1]):
            yield f"shard {shard} has several attempts that have not ended"
        if any(one.state is attempt.SUCCEEDED for one in mine[:-1]):
            yield f"shard {shard} was tried again after it had succeeded"
        if state in (job.PENDING, job.RUNNING) and not body.data.stop_reason:
            if mine[-1].state not in attempt.ENDED or mine[-1].state is attempt.SUCCEEDED:
                continue
            yield f"the job goes on, but shard {shard} ended {mine[-1].state}"
    succeeded = {one.shard for one in body.attempts if one.state is attempt.SUCCEEDED}
    if (state is job.COMPLETED) != (succeeded == set(shards)):
        yield f"the job is {state} and the shards that have succeeded are {sorted(succeeded)}"


def _wrong_end(record: Record, state: JobState, body: JobBody) -> Iterator[str]:
    if state is job.RUNNING and body.data.stop_reason and not body.active:
        yield "it is being stopped, nothing is active, and it has not ended"
    if state not in job.ENDED:
        return
    if record.ready_at is not None:
        yield "it has ended and is ready"
    if body.timer_at is not None:
        yield "it has ended and its time still runs"
    left = [one for one in body.attempts if one.state not in attempt.ENDED]
    if state is job.FAILED:  # what another shard still does is asked to stop
        left = [one for one in left if one.state is not attempt.CANCEL_REQUESTED]
        if body.failure is None:
            yield "it has failed and nobody says why"
    if left:
        yield f"it has ended and {', '.join(one.name for one in left)} has not"
    if state is not job.FAILED and record.deadline_at is not None:
        yield "it has ended and has a deadline"


def _wrong_columns(record: Record, state: JobState, body: JobBody) -> Iterator[str]:
    waiting = [one for one in body.attempts if one.state in attempt.UNLEASED]
    prompt = [record.created_at for one in waiting if one.prompt]
    ready = [one.ready_at for one in waiting if one.ready_at]
    if record.ready_at != min([*ready, *prompt], default=None):
        yield f"it is ready at {record.ready_at}, but its attempts at {ready}"
    timers: list[datetime] = [body.timer_at] if body.timer_at else []
    for one in body.attempts:
        timers += [one.timer_at] if one.timer_at else []
        if one.lease is not None and one.lease.state in lease.LIVE:
            timers.append(one.lease.data.expires_at)
    if record.deadline_at != min(timers, default=None):
        yield f"its deadline is {record.deadline_at}, but its timers are {timers}"
    if (state is job.RUNNING) != (body.timer_at is not None) and not body.data.stop_reason:
        yield f"it is {state} and its timer is {body.timer_at}"
    if body.data.completed_at is not None and body.data.completed_at < record.created_at:
        yield "it ended before it began"


def _too_many(body: JobBody, releases: int) -> Iterator[str]:
    allowed = DEFAULT_LOSSES if body.losses_allowed is None else body.losses_allowed
    if body.losses > allowed + body.data.worker_count:
        yield f"it was lost {body.losses} times"
    retries = sum(rule.retries for rule in DEFAULT_RETRIES.values()) + 2 * (body.retries or 0)
    most = body.data.worker_count * (1 + retries) + allowed + releases
    if body.tries > most:
        yield f"there were {body.tries} attempts, at most {most} are explained"
