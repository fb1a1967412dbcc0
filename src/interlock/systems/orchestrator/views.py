"""Views of jobs and of trees of jobs: everything but their secrets.

A parent also reads its children here, under its lease and with their results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from interlock.engine.unit_of_work import Engine
from interlock.errors import UnknownLease
from interlock.lifecycles import attempt, job
from interlock.lifecycles.job import JOB, JobState
from interlock.store.contract import Store
from interlock.store.records import Key, Query, Record
from interlock.systems.orchestrator.attachments import result_key
from interlock.systems.orchestrator.body import (
    AttemptBody,
    JobBody,
    Provenance,
    decode_body,
    given_of,
)
from interlock.systems.orchestrator.failures import Failure
from interlock.systems.orchestrator.mailboxes import open_waits, wait_of
from interlock.systems.orchestrator.runner_messages import decide_message
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.tokens import Token, raise_for_answer, read_token
from interlock.systems.orchestrator.tree_slots import waits_for_children, waits_for_jobs, waits_for_place
from interlock.wire.jobs import (
    AttemptView,
    ChildPage,
    ChildView,
    FailureView,
    JobSpec,
    JobView,
    LeaseView,
    TreeNode,
    TreeView,
)
from interlock.wire.runner import Heartbeat
from interlock.wire.schedules import schedule_in, scheduled_for_in


class FilterFields(msgspec.Struct, frozen=True, gc=False):
    """The part of a job that filters use."""

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


def filter_fields(record: Record) -> FilterFields:
    """Return the part of a job for filters, at a tenth of the cost of a view."""
    return FilterFields(
        record.id,
        record.state,
        record.queue or "",
        record.labels,
        record.parent,
        _TASK.decode(record.body).task,
        record.created_at,
    )


class FailureFields(msgspec.Struct, frozen=True, gc=False):
    """The part of a failed job that identifies its failure."""

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


def failure_fields(record: Record) -> FailureFields:
    """Return the failure of a job."""
    seen = _FAILED.decode(record.body)
    if seen.failure is None:
        return FailureFields(seen.task, "", "", seen.data.completed_at)
    shown = failure_view(seen.failure)
    return FailureFields(seen.task, shown.failure_class, shown.error, seen.data.completed_at)


def large_result_keys(record: Record) -> list[Key]:
    """Return the keys of large results of a job.

    These are results of a completed job, and those that came after a cancel.
    """
    if b'"result_apart"' not in record.body:
        return []
    shown = (attempt.CANCELED, attempt.SUCCEEDED) if record.state == job.COMPLETED else (attempt.CANCELED,)
    done = [one for one in decode_body(record.body).attempts if one.state in shown]
    return [result_key(record.id, one.name) for one in done if one.result_apart]


def view_of(record: Record, kept: Mapping[str, msgspec.Raw] | None = None) -> JobView:
    """Return the view of a job; `kept` are its large results by id, if loaded."""
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
        not_after=body.not_after,
        unique_key=given.unique.key if given.unique is not None else None,
        unique=given.unique.rule if given.unique is not None else None,
        stop_reason=body.data.stop_reason,
        cancel_reason=body.cancel_reason or None,
        losses=body.losses,
        failure=failure_view(body.failure) if body.failure is not None else None,
        result=result_of(record, body, kept or {}),
        input=given.input,
        attempts=tuple(_attempt_view(record, one, kept or {}) for one in body.attempts),
        origin_job_id=body.origin_job_id,
        schedule=schedule_in(given.trace) if given.trace else None,
        scheduled_for=scheduled_for_in(given.trace) if given.trace else None,
        secrets=body.secrets,
        secrets_withheld=body.secrets_withheld,
        metadata=given.metadata,
        limits=body.limits.keys if body.limits is not None else (),
        weight=body.limits.weight if body.limits is not None else 1,
        admitted_at=body.limits.since if body.limits is not None else None,
        after=body.after.rule if body.after is not None else None,
        waits_for=body.after.left if body.after is not None else (),
        waits=open_waits(body) if body.mail and record.state not in job.ENDED else (),
        followers=sum(not name.startswith("b_") for name in body.then),
        batch_id=next((name.rpartition(".")[0] for name in body.then if name.startswith("b_")), None),
    )


def result_of(
    record: Record, body: JobBody, kept: Mapping[str, msgspec.Raw]
) -> msgspec.Raw | msgspec.UnsetType:
    """Return the result of a completed job; a list for several shards."""
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
    """Return the spec of a job for a retry, without its parent."""
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
        metadata=given.metadata,
        unique=None if given.unique is None else msgspec.structs.replace(given.unique.rule, policy="reject"),
        limits=body.limits.keys if body.limits is not None else (),
        weight=body.limits.weight if body.limits is not None else 1,
    )


def origin_again(record: Record) -> Provenance | None:
    """Return the provenance of a retried job, without its environment."""
    origin = decode_body(record.body).origin
    return None if origin is None else msgspec.structs.replace(origin, environment="")


def _attempt_view(record: Record, one: AttemptBody, kept: Mapping[str, msgspec.Raw]) -> AttemptView:
    held = one.lease
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
        lease=None
        if held is None
        else LeaseView(
            state=held.state,
            runner_id=held.data.runner_id,
            granted_at=held.granted_at,
            expires_at=held.data.expires_at,
        ),
        failure=failure_view(one.failure) if one.failure is not None else None,
        progress=one.progress,
        cost=one.cost,
        snoozed_until=one.snoozed_until,
        forced=one.forced,
        confirmed_dead=one.confirmed_dead,
        result=_result(record.id, one, kept) if one.state is attempt.CANCELED else msgspec.UNSET,
    )


def failure_view(failure: Failure) -> FailureView:
    """Return a failure for display."""
    return FailureView(
        failure_class=failure.failure_class,
        error=failure.error,
        exception=failure.exception,
        exit_code=failure.exit_code,
        details=failure.details,
    )


PAGE = 100
"""Number of children in one page: each may have a large result."""


async def tree_below(
    store: Store, root: Record, most: int, sees: Callable[[str], bool] | None = None
) -> TreeView:
    """Return a job and its visible descendants by level, up to a limit."""
    records, below, cut, hidden = [root], dict[str, list[Record]](), False, False
    level = [root]
    while level and not cut:
        parents = [record for record in level if decode_body(record.body).children]
        level = []
        for parent in parents:
            room = most - len(records)
            found, more = await _children(store, parent.id, room)
            seen = [each for each in found if sees is None or sees(each.queue or "")]
            below[parent.id] = seen
            records += seen
            level += seen
            hidden = hidden or len(seen) < len(found)
            if cut := more:
                break
    return _view(root, below, cut=cut or hidden)


async def _children(store: Store, parent_id: str, most: int) -> tuple[list[Record], bool]:
    found: list[Record] = []
    query = Query(kind=JOB.name, parent=parent_id, newest_first=False, limit=min(most + 1, 1_000))
    while True:
        page = await store.find(query)
        found += page.records
        if len(found) > most:
            return found[:most], True
        if not page.cursor:
            return found, False
        query = msgspec.structs.replace(query, cursor=page.cursor)


def _view(root: Record, below: Mapping[str, Sequence[Record]], *, cut: bool) -> TreeView:
    costs: dict[str, float | None] = {}
    nodes = list(_nodes(root, below, 0, costs))
    nodes = [msgspec.structs.replace(node, tree_cost=costs[node.id]) for node in nodes]
    states = Counter(node.state for node in nodes)
    return TreeView(root_id=root.id, nodes=tuple(nodes), states=dict(states), cut=cut)


def _nodes(
    record: Record, below: Mapping[str, Sequence[Record]], depth: int, costs: dict[str, float | None]
) -> Iterator[TreeNode]:
    """Yield nodes from the top down, and add up the costs on the way back."""
    node = _node(record, decode_body(record.body), depth)
    yield node
    spent = [node.cost]
    for child in below.get(record.id, ()):
        yield from _nodes(child, below, depth + 1, costs)
        spent.append(costs[child.id])
    costs[record.id] = total(spent)


def _node(record: Record, body: JobBody, depth: int) -> TreeNode:
    shown = [one.progress for one in body.attempts if one.progress is not None]
    return TreeNode(
        id=record.id,
        task=body.task,
        state=str(record.state),
        queue=record.queue or "",
        depth=depth,
        parent_job_id=record.parent if body.run is None else None,
        description=given_of(record).description,
        created_at=record.created_at,
        started_at=body.data.started_at,
        completed_at=body.data.completed_at,
        progress=shown[-1] if shown else None,
        waits_for=held_by(body),
        failure=failure_view(body.failure) if body.failure is not None else None,
        stop_reason=body.data.stop_reason,
        cost=cost_of(body),
        children=body.children,
    )


def held_by(body: JobBody) -> str:
    """Return why a job waits for others or for an answer, if it does."""
    if waits_for_jobs(body):
        return "jobs"
    if waiting := [each for one in body.attempts if (each := wait_of(one, body)) is not None]:
        return "signal" if waiting[0].question is None else "approval"
    if any(map(waits_for_children, body.attempts)):
        return "children"
    return "place" if any(waits_for_place(one, body) for one in body.attempts) else ""


def cost_of(body: JobBody) -> float | None:
    """Return the cost of its attempts."""
    return total([one.cost for one in body.attempts])


def total(costs: Sequence[float | None]) -> float | None:
    """Return the sum of known costs; None if there are none."""
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known else None


async def children_of(
    engine: Engine,
    settings: OrchestratorSettings,
    token_text: str,
    runner_id: str,
    cursor: str,
    sees: Callable[[str], bool] | None = None,
) -> ChildPage:
    """Return a page of the children of the token's job, with their results."""
    token = read_token(token_text)
    if token is None:
        raise UnknownLease("This is not the token of a lease.", todo="Claim work first.")
    (parent,) = await engine.store.load([Key(JOB.name, token.job_id)])
    check_lease(parent, token, token_text, runner_id, await engine.clock.now(), settings)
    query = Query(kind=JOB.name, parent=token.job_id, newest_first=False, cursor=cursor, limit=PAGE)
    page = await engine.store.find(query)
    records = [record for record in page.records if sees is None or sees(record.queue or "")]
    keys = [key for record in records for key in large_result_keys(record)]
    found = await engine.store.load(keys) if keys else []
    kept = {each.id: msgspec.Raw(each.body) for each in found if each is not None}
    return ChildPage(children=tuple(child_view(record, kept) for record in records), cursor=page.cursor)


def check_lease(
    record: Record | None,
    token: Token,
    token_text: str,
    runner_id: str,
    now: datetime,
    settings: OrchestratorSettings,
) -> None:
    """Raise unless the lease would accept a heartbeat; write nothing."""
    heartbeat = Heartbeat(token=token_text, runner_id=runner_id)
    raise_for_answer(decide_message(record, token, heartbeat, now, "", settings).answer)


def child_view(record: Record, kept: Mapping[str, msgspec.Raw]) -> ChildView:
    """Return a job as the handler of another one sees it, with its result."""
    body = decode_body(record.body)
    return ChildView(
        id=record.id,
        task=body.task,
        state=str(record.state),
        result=result_of(record, body, kept),
        failure=failure_view(body.failure) if body.failure is not None else None,
        stop_reason=body.data.stop_reason,
        cost=cost_of(body),
    )
