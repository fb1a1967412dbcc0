"""Messages, workers and job records as small numbers: states are hashed and compared by the million.

A record is stored without the parts that no decision depends on; equal records share one number.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import IntEnum
from functools import cache
from typing import NamedTuple

import msgspec

from interlock.lifecycles import attempt, lease
from interlock.lifecycles.job import JOB, PENDING, Job
from interlock.store.records import Record
from interlock.systems.orchestrator.body import AttemptBody, JobBody, decode_body, encode_body
from interlock.systems.orchestrator.failures import Failure
from interlock.systems.orchestrator.tokens import digest_of, token_for


class Say(IntEnum):
    """A kind of message."""

    ACK = 0
    BEAT = 1
    SUCCESS = 2
    FAILURE = 3
    RELEASE = 4
    STOPPED = 5
    SUBMIT = 6
    CANCEL = 7
    GRANT = 8
    BEGIN = 9
    TOLD = 10
    OVER = 11


ANSWERS = (Say.GRANT, Say.BEGIN, Say.TOLD, Say.OVER)
COMMANDS = (Say.SUBMIT, Say.CANCEL)
FIRST_COMMAND, FIRST_ANSWER = int(Say.SUBMIT), int(Say.GRANT)


class ModelMessage(NamedTuple):
    """One message: its kind, its worker, and its attempt."""

    say: Say
    worker: int
    job: int
    shard: int
    attempt: int
    number: int


class Phase(IntEnum):
    """The phase of a worker."""

    IDLE = 0
    ACKING = 1
    WORKING = 2
    REPORTING = 3


class Hand(NamedTuple):
    """The state of a worker: its attempt, the number of heartbeats, whether it has to stop."""

    phase: Phase
    job: int
    shard: int
    attempt: int
    beats: int
    stopping: int


IDLE = 0


def write_message(say: int, worker: int, job: int, shard: int = 0, attempt: int = 0, number: int = 0) -> int:
    """Encode a message as a number."""
    return ((((say << 2 | worker) << 2 | job) << 2 | shard) << 3 | attempt) << 3 | number


@cache
def read_message(code: int) -> ModelMessage:
    """Decode a message."""
    return ModelMessage(
        Say(code >> 12), code >> 10 & 3, code >> 8 & 3, code >> 6 & 3, code >> 3 & 7, code & 7
    )


def write_hand(phase: int, job: int, shard: int, attempt: int, beats: int = 0, stopping: int = 0) -> int:
    """Encode the state of a worker as a number; 0 if it is idle."""
    return ((((phase << 2 | job) << 2 | shard) << 3 | attempt) << 3 | beats) << 1 | stopping


@cache
def read_hand(code: int) -> Hand:
    """Decode the state of a worker."""
    return Hand(Phase(code >> 11), code >> 9 & 3, code >> 7 & 3, code >> 4 & 7, code >> 1 & 7, code & 1)


NOW = datetime(2030, 1, 1, tzinfo=UTC)
TICK = timedelta(seconds=1)
FAR_S = 86_400.0
"""A duration that never ends in a model."""
_FAR, _NEAR = NOW + timedelta(seconds=FAR_S), timedelta(seconds=FAR_S / 2)
JOB_ID = "j"


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """One value of a job's record: its state, and the rest as its body."""

    state: str
    body: bytes
    result: bytes
    ready_at: datetime | None
    deadline_at: datetime | None

    def record(self, version: int = 1) -> Record:
        """Return the record, as a store would return it."""
        return Record(
            kind=JOB.name,
            id=JOB_ID,
            state=self.state,
            version=version,
            body=self.body,
            result=self.result,
            queue="default",
            ready_at=self.ready_at,
            deadline_at=self.deadline_at,
            created_at=NOW,
            updated_at=NOW,
        )


def runner_of(worker: int) -> str:
    """Return the name of a worker, which survives restarts."""
    return f"w{worker}"


def digest_for(worker: int, shard: int, index: int) -> str:
    """Return the stored digest of the secret of this worker."""
    return digest_of(token_for(runner_of(worker).encode(), JOB_ID, shard, index).secret)


def normal(record: Record, *, passed: int = 0, names: tuple[int, ...] = (), known: int = -1) -> Value:
    """Return the value of a record, `passed` ticks later.

    Workers are renamed, and only `known` leases have a name. `known` has a bit for each attempt whose token
    is still in use: of other ended leases only the end is kept.
    """
    body = decode_body(record.body)
    timers = _Timers(body, timedelta(seconds=passed))
    body.data = _undated(body.data)
    body.timer_at = timers.moved(body.timer_at)
    body.failure = _wordless(body.failure)
    body.not_after = timers.moved(body.not_after) if record.state == PENDING else None
    for one in body.attempts:
        _normal_attempt(one, timers)
        if names or known != -1:
            _name_lease(one, names, known)
    # The result only distinguishes a repeated report from another one, while a report is still possible.
    acknowledged = any(one.lease is not None and one.lease.data.runner_id for one in body.attempts)
    ready_at = record.ready_at
    return Value(
        state=record.state,
        body=encode_body(body),
        result=record.result if acknowledged else b"",
        ready_at=max(ready_at - timedelta(seconds=passed), NOW) if ready_at else None,
        deadline_at=timers.moved(record.deadline_at),
    )


def attempt_bit(shard: int, index: int) -> int:
    """Return the bit of an attempt of a job."""
    return 1 << (8 * shard + index)


class _Timers:
    """Shifts times. Expired timers keep their order: the earliest fires first."""

    def __init__(self, body: JobBody, passed: timedelta) -> None:
        self._passed = passed
        moments = {m - passed for m in _moments(body)}
        over = sorted((m for m in moments if m <= NOW), reverse=True)
        self._over = {moment: NOW - place * TICK for place, moment in enumerate(over)}

    def moved(self, moment: datetime | None) -> datetime | None:
        """Return the time relative to now."""
        if moment is None:
            return None
        seen = moment - self._passed
        if seen <= NOW:
            return self._over.get(seen, seen)
        return seen if seen - NOW < _NEAR else _FAR


def _moments(body: JobBody) -> list[datetime]:
    timers = [body.timer_at, body.not_after, *(one.timer_at for one in body.attempts)]
    leases = [one.lease.timer_at for one in body.attempts if one.lease is not None]
    return [moment for moment in (*timers, *leases) if moment is not None]


def _undated(data: Job) -> Job:
    return msgspec.structs.replace(
        data,
        created_at=None,
        started_at=NOW if data.started_at else None,
        completed_at=NOW if data.completed_at else None,
    )


def _wordless(failure: Failure | None) -> Failure | None:
    """Return a failure without its texts, which may name a worker."""
    return failure and msgspec.structs.replace(failure, error="", exception="", details="")


def _normal_attempt(one: AttemptBody, timers: _Timers) -> None:
    one.created_at = NOW
    one.snoozed_until = NOW + TICK if one.snoozed_until else None  # no model snoozes for less
    one.started_at = NOW if one.started_at else None
    one.ended_at = NOW if one.ended_at else None
    one.timer_at = timers.moved(one.timer_at)
    if one.state in attempt.UNLEASED:
        moved = timers.moved(one.ready_in(NOW))
        one.ready_at = None if moved is None else max(moved, NOW)
    else:
        one.ready_at = None
    one.prompt = False
    one.failure = _wordless(one.failure)
    held = one.lease
    if held is not None:
        held.granted_at = NOW
        live = held.state in lease.LIVE
        held.sequence = held.sequence if live else -1
        expires_at = timers.moved(held.data.expires_at) if live else NOW
        held.data = msgspec.structs.replace(held.data, expires_at=expires_at or NOW)


def _name_lease(one: AttemptBody, names: tuple[int, ...], known: int) -> None:
    held = one.lease
    if held is None or not held.data.runner_id:
        return
    if held.state not in lease.LIVE and not known & attempt_bit(one.shard, one.index):
        held.data = msgspec.structs.replace(held.data, runner_id="")
        held.digest, one.reported = "", ""
    elif names:
        worker = names[int(held.data.runner_id[1:])]
        held.data = msgspec.structs.replace(held.data, runner_id=runner_of(worker))
        held.digest = digest_for(worker, one.shard, one.index)
