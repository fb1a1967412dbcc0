"""How a job is shown: everything but its secrets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from interlock.lifecycles import attempt, job
from interlock.lifecycles.job import JobState
from interlock.store.records import Key, Record
from interlock.systems.orchestrator.attachments import result_key
from interlock.systems.orchestrator.body import (
    AttemptBody,
    JobBody,
    LeaseBody,
    Provenance,
    decode_body,
    given_of,
)
from interlock.systems.orchestrator.failures import Failure
from interlock.wire.jobs import AttemptView, FailureView, JobSpec, JobView, LeaseView


class Glimpse(msgspec.Struct, frozen=True, gc=False):
    """As much of a job as filters ask about."""

    id: str
    state: str
    queue: str
    labels: tuple[str, ...]
    parent_job_id: str | None
    task: str
    created_at: datetime


class _Task(msgspec.Struct, gc=False):
    task: str


_TASK = msgspec.json.Decoder(_Task)


def glimpse(record: Record) -> Glimpse:
    """A look at a job that costs a tenth of seeing all of it."""
    return Glimpse(
        record.id,
        record.state,
        record.queue or "",
        record.labels,
        record.parent,
        _TASK.decode(record.body).task,
        record.created_at,
    )


class FailureGlimpse(msgspec.Struct, frozen=True, gc=False):
    """As much of a failed job as tells its failure from another."""

    task: str
    failure_class: str
    error: str
    failed_at: datetime | None


class _FailedData(msgspec.Struct, gc=False):
    completed_at: datetime | None = None


class _Failed(msgspec.Struct, gc=False):
    task: str
    data: _FailedData
    failure: Failure | None = None


_FAILED = msgspec.json.Decoder(_Failed)


def glimpse_failure(record: Record) -> FailureGlimpse:
    """A look at why a job has failed."""
    seen = _FAILED.decode(record.body)
    if seen.failure is None:
        return FailureGlimpse(seen.task, "", "", seen.data.completed_at)
    shown = failure_view(seen.failure)
    assert shown is not None
    return FailureGlimpse(seen.task, shown.failure_class, shown.error, seen.data.completed_at)


def apart(record: Record) -> list[Key]:
    """Where the large results of a job are: of a completed one, and those that came after a cancel."""
    if b'"result_apart"' not in record.body:
        return []
    shown = (attempt.CANCELED, attempt.SUCCEEDED) if record.state == job.COMPLETED else (attempt.CANCELED,)
    done = [one for one in decode_body(record.body).attempts if one.state in shown]
    return [result_key(record.id, one.name) for one in done if one.result_apart]


def view_of(record: Record, kept: Mapping[str, msgspec.Raw] | None = None) -> JobView:
    """The job as it stands; `kept` are its large results by their ids, where somebody has loaded them."""
    body, given = decode_body(record.body), given_of(record)
    return JobView(
        id=record.id,
        state=record.state,
        version=record.version,
        task=body.task,
        queue=record.queue or "",
        created_at=record.created_at,
        updated_at=record.updated_at,
        priority=record.priority,
        labels=record.labels,
        description=given.description,
        parent_job_id=record.parent if body.run is None else None,
        run_id=body.run.run_id if body.run is not None else None,
        depth=body.data.depth,
        worker_count=body.data.worker_count,
        children=body.children,
        started_at=body.data.started_at,
        completed_at=body.data.completed_at,
        ready_at=record.ready_at,
        deadline_at=record.deadline_at,
        stop_reason=body.data.stop_reason,
        cancel_reason=body.cancel_reason or None,
        losses=body.losses,
        failure=failure_view(body.failure),
        result=result_of(record, body, kept or {}),
        input=given.input,
        attempts=tuple(_attempt_view(record, one, kept or {}) for one in body.attempts),
        origin_job_id=body.origin_job_id,
        secrets=body.secrets,
        secrets_withheld=body.secrets_withheld,
    )


def result_of(
    record: Record, body: JobBody, kept: Mapping[str, msgspec.Raw]
) -> msgspec.Raw | msgspec.UnsetType:
    """What a completed job returned; a list when it had several shards."""
    if JobState(record.state) is not job.COMPLETED:
        return msgspec.UNSET
    if record.result:
        return msgspec.Raw(record.result)
    done = {one.shard: one for one in body.attempts if one.state is attempt.SUCCEEDED}
    results = [_result(record.id, done[shard], kept) for shard in sorted(done)]
    if any(result is msgspec.UNSET for result in results):
        return msgspec.UNSET
    return results[0] if body.data.worker_count == 1 else msgspec.Raw(msgspec.json.encode(results))


def _result(
    job_id: str, one: AttemptBody, kept: Mapping[str, msgspec.Raw]
) -> msgspec.Raw | msgspec.UnsetType:
    return kept.get(result_key(job_id, one.name).id, msgspec.UNSET) if one.result_apart else one.result


def spec_of(record: Record) -> JobSpec:
    """What was submitted, to be submitted again; the parent may have ended, so it is left out."""
    body, given = decode_body(record.body), given_of(record)
    return JobSpec(
        task=body.task,
        input=given.input,
        queue=record.queue or "default",
        priority=record.priority,
        labels=record.labels,
        worker_count=body.data.worker_count,
        description=given.description,
        timeout_s=body.timeout_s,
        job_timeout_s=body.job_timeout_s,
        retries=body.retries,
        retry=body.retry,
        losses=body.losses_allowed,
        secrets=body.secrets,
        secrets_withheld=body.secrets_withheld,
        trace=given.trace,
    )


def origin_again(record: Record) -> Provenance | None:
    """Return where a job comes from that is done again alone; the environment was allowed to its run only."""
    origin = decode_body(record.body).origin
    return None if origin is None else msgspec.structs.replace(origin, environment="")


def _attempt_view(record: Record, one: AttemptBody, kept: Mapping[str, msgspec.Raw]) -> AttemptView:
    return AttemptView(
        id=f"{record.id}.{one.name}",
        shard=one.shard,
        index=one.index,
        state=one.state,
        created_at=one.created_at or record.created_at,
        ready_at=one.ready_in(record.created_at),
        started_at=one.started_at,
        ended_at=one.ended_at,
        deadline_at=one.timer_at,
        lease=_lease_view(one.lease) if one.lease else None,
        failure=failure_view(one.failure),
        progress=one.progress,
        cost=one.cost,
        forced=one.forced,
        confirmed_dead=one.confirmed_dead,
        result=_result(record.id, one, kept) if one.state is attempt.CANCELED else msgspec.UNSET,
    )


def _lease_view(held: LeaseBody) -> LeaseView:
    return LeaseView(
        state=held.state,
        runner_id=held.data.runner_id,
        granted_at=held.granted_at,
        expires_at=held.data.expires_at,
    )


def failure_view(failure: Failure | None) -> FailureView | None:
    """Why something failed, as it is shown."""
    if failure is None:
        return None
    return FailureView(
        failure_class=failure.failure_class,
        error=failure.error,
        exception=failure.exception,
        exit_code=failure.exit_code,
        details=failure.details,
    )
