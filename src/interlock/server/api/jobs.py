"""Routes of jobs: submit, list, show, cancel and retry them, singly or by filter; attempts, trees, queues.

Similar failures: no index of failures exists, and counting a table would cost more the more has failed. So
the newest failed jobs are read, up to a bound of jobs and of bytes, and the answer says how many that were.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from interlock.api import jobs as api
from interlock.api.messages import ActionAnswer, CountView, Done, EntryView, HistoryPage, Undone
from interlock.errors import InterlockError, UnknownAttempt, UnknownJob
from interlock.lifecycles import job
from interlock.lifecycles.job import FAILED, JOB
from interlock.server.api.runner import known_as
from interlock.server.api.visibility import (
    TextRedactor,
    cursor_of_place,
    every_job,
    filter_of,
    job_of,
    need_own_keys,
    page_of,
    place_of_cursor,
    redactor_of,
    selection_of,
    shaped,
    shown,
    unknown_job,
)
from interlock.server.authentication import lease_of
from interlock.server.bulk import act_once, answer_of, part_of
from interlock.server.history import history_of
from interlock.server.requests import decode
from interlock.server.routes import Call, handles
from interlock.store.records import Key, Query, Record
from interlock.systems.orchestrator.attachments import LOG, Chunk, lines_of
from interlock.systems.orchestrator.dependencies import named_in
from interlock.systems.orchestrator.views import failure_fields
from interlock.wire.artifacts import LEASE, RUNNER
from interlock.wire.filter_language import LOOKED_AT
from interlock.wire.jobs import (
    AttemptView,
    Born,
    ChildPage,
    Explanation,
    JobSpec,
    JobView,
    NewChildren,
    PredecessorPage,
    QueueHold,
    TreeView,
)


class _ManyMarker(msgspec.Struct):
    """Only the field that distinguishes one job from many."""

    jobs: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_MANY_MARKER = msgspec.json.Decoder(_ManyMarker)
_ONE = msgspec.json.Decoder(api.OneJob)
_MANY = msgspec.json.Decoder(api.ManyJobs)


def read_submission(body: bytes) -> api.OneJob | api.ManyJobs:
    """Decode one job, or several under `jobs`."""
    if decode(_MANY_MARKER, body).jobs is msgspec.UNSET:
        return decode(_ONE, body)
    return decode(_MANY, body)


@handles(api.SUBMIT_JOBS, read=read_submission)
async def submit(call: Call) -> api.Submitted:
    """Submit the jobs, atomically if there is a request id."""
    match call.body:
        case api.ManyJobs(jobs=jobs):
            specs: tuple[JobSpec, ...] = jobs
        case one:
            specs = (one.spec(),)
    call.principal.need_queues(spec.queue for spec in specs)
    if call.principal.scoped:
        for other in {spec.parent_job_id for spec in specs if spec.parent_job_id} | set(named_in(specs)):
            await job_of(call, other)
    need_own_keys(call, specs)
    made = await call.parts.runtime.jobs.submit_jobs(specs, actor=call.actor, request_id=call.request_id)
    how = tuple(each.how for each in made)
    return api.Submitted(
        ids=tuple(each.id for each in made),
        id=made[0].id if len(made) == 1 else None,
        how=how if any(each != "created" for each in how) else (),
    )


A = TypeVar("A")

MAX_COUNT = 10_000


@handles(api.LIST_JOBS)
async def list_jobs(call: Call) -> api.JobPage:
    """Return a page of jobs that match a filter; the first page has a count."""
    query: api.JobsQuery = call.query
    place = await place_of_cursor(call)
    selection = await selection_of(call, filter_of(call, query.q), limit=query.limit, cursor=place)
    views, cursor = await page_of(call, selection)
    count = None
    if not query.cursor and not cursor:
        count = CountView(number=len(views))
    elif not query.cursor and len(views) < query.limit:
        # The search ended before the page was full: a count would examine the same jobs again.
        count = CountView(number=len(views), capped=True)
    elif not query.cursor:
        found = await call.parts.runtime.jobs.count(selection.query, cap=MAX_COUNT, within=LOOKED_AT)
        # Jobs are not counted if the store cannot evaluate the filter: the page gives a lower bound.
        count = (
            CountView(number=found.number, capped=found.capped)
            if selection.exact
            else CountView(number=len(views), capped=True)
        )
    jobs = tuple(await shown(call, views))
    return api.JobPage(jobs=jobs, cursor=await cursor_of_place(call, cursor), count=count)


@handles(api.GET_JOB)
async def get_job(call: Call) -> JobView:
    """Return a job."""
    (view,) = await shown(call, [await job_of(call)])
    return view


@handles(api.GET_JOB_HISTORY)
async def get_history(call: Call) -> HistoryPage:
    """Return the journal of a job, oldest first."""
    page = await history_of(call.parts.store, call.query, Key(JOB.name, (await job_of(call)).id))
    if not call.principal.scoped:
        return page
    texts = [text for each in page.entries for text in (each.reason, each.cause, each.refusal)]
    redactor = await redactor_of(call, texts)
    entries = tuple(_entry(redactor, entry) for entry in page.entries)
    return msgspec.structs.replace(page, entries=entries)


def _entry(redactor: TextRedactor, entry: EntryView) -> EntryView:
    """Return an entry, without its journal cursor for a scoped token."""
    reason, cause, refusal = map(redactor.text, (entry.reason, entry.cause, entry.refusal))
    return msgspec.structs.replace(entry, cursor="", reason=reason, cause=cause, refusal=refusal)


@handles(api.EXPLAIN_JOB)
async def explain_job(call: Call) -> Explanation:
    """Explain why a job waits, or how it ended."""
    job = await job_of(call)
    explanation = await call.parts.runtime.jobs.explain(job.id, in_general=not call.principal.scoped)
    redactor = await redactor_of(call, [explanation.sentence, *(line.sentence for line in explanation.lines)])
    lines = [
        msgspec.structs.replace(line, sentence=redactor.text(line.sentence)) for line in explanation.lines
    ]
    return msgspec.structs.replace(
        explanation, sentence=redactor.text(explanation.sentence), lines=tuple(lines)
    )


@handles(api.GET_JOB_LOGS)
async def get_logs(call: Call) -> api.LogPage:
    """Return a page of the log of a job."""
    job, query = await job_of(call), call.query
    page = await call.parts.store.find(
        Query(
            kind=LOG.name,
            parent=job.id,
            newest_first=False,
            cursor=await place_of_cursor(call),
            limit=query.limit,
        )
    )
    chunks = [msgspec.json.decode(record.body, type=Chunk) for record in page.records]
    lines = tuple(
        api.LogLineView(
            at=placed.line.at,
            level=placed.line.level,
            text=placed.line.text,
            shard=chunk.shard,
            attempt=chunk.attempt,
            offset=placed.offset,
        )
        for chunk in chunks
        for placed in lines_of(chunk)
    )
    return api.LogPage(lines=lines, cursor=await cursor_of_place(call, page.cursor))


@handles(api.CANCEL_JOB)
async def cancel_job(call: Call) -> JobView:
    """Request the cancellation of a job; the view shows its progress."""
    body: api.CancelRequest = call.body
    cancel = partial(
        call.parts.runtime.jobs.cancel, reason=body.reason, actor=call.actor, request_id=call.request_id
    )
    return (await shown(call, [await _with_own(call, cancel)]))[0]


@handles(api.RETRY_JOB)
async def retry_job(call: Call) -> api.Submitted:
    """Resubmit a finished job as a new job."""
    retry = partial(call.parts.runtime.jobs.retry, actor=call.actor, request_id=call.request_id)
    new_id = await _with_own(call, retry)
    return api.Submitted(ids=(new_id,), id=new_id)


async def _with_own(call: Call, do: Callable[[str], Awaitable[A]]) -> A:
    """Call `do` with the job of the path, if the token may see the job.

    Raise `UnknownJob` otherwise. A pruned job is left to `do`, which may return the recorded response of a
    repeated request.
    """
    job_id = shaped(call.path["job_id"])
    if call.principal.scoped:
        (view,) = await call.parts.runtime.jobs.get_many([job_id])
        if view is not None and not call.principal.sees(view.queue):
            raise unknown_job(job_id)
    try:
        return await do(job_id)
    except UnknownJob:
        raise unknown_job(job_id) from None


@handles(api.LIST_ATTEMPTS)
async def list_attempts(call: Call) -> api.AttemptList:
    """Return the attempts of one job."""
    query: api.AttemptsQuery = call.query
    job = await job_of(call, query.job)
    return api.AttemptList(job_id=job.id, attempts=job.attempts)


@handles(api.GET_ATTEMPT)
async def get_attempt(call: Call) -> AttemptView:
    """Return one attempt; its id begins with that of its job."""
    attempt_id = call.path["attempt_id"]
    try:
        job = await job_of(call, attempt_id.split(".")[0])
    except UnknownJob:
        raise _unknown(attempt_id) from None
    for attempt in job.attempts:
        if attempt.id == attempt_id:
            return attempt
    raise _unknown(attempt_id)


def _unknown(attempt_id: str) -> UnknownAttempt:
    return UnknownAttempt(
        f"There is no attempt {attempt_id[:100]}.",
        todo="List them with GET /api/attempts?job=ID.",
        facts={"attempt_id": attempt_id[:100]},
    )


ENDPOINT = "actions"


@handles(api.ACT_ON_JOBS)
async def act(call: Call) -> ActionAnswer:
    """Apply an action to all jobs that match a filter, and return the results."""
    return await act_once(call, ENDPOINT, call.body, partial(_act, call))


async def _act(call: Call) -> ActionAnswer:
    body: api.ActionRequest = call.body
    views, more = await _matching(call, body)
    if body.dry_run:
        done = tuple(Done(id=view.id, state=view.state) for view in views)
        return ActionAnswer(action=body.action, dry_run=True, done=done, more=more)
    return answer_of(body.action, await _all(call, body, views), more=more)


async def _matching(call: Call, request: api.ActionRequest) -> tuple[list[JobView], bool]:
    """Return the jobs in states that the action applies to.

    Unfinished jobs are canceled, and finished jobs are retried.
    """
    ended = request.action == "retry"
    states = [str(state) for state in job.JOB.states if (state in job.ENDED) is ended]
    wanted = filter_of(call, request.filter).among(states)
    if not wanted.wanted_states:
        return [], False
    found = [view async for view in every_job(call, wanted, request.limit)]
    return [view for view in found if view is not None], None in found


async def _all(call: Call, request: api.ActionRequest, views: Sequence[JobView]) -> list[Done | Undone]:
    jobs, ids = call.parts.runtime.jobs, [view.id for view in views]
    request_ids = [part_of(call.request_id, job_id) for job_id in ids]
    if request.action == "retry":
        made = await jobs.retry_all(ids, actor=call.actor, request_ids=request_ids)
        return [_outcome(view, view.state, new) for view, new in zip(views, made, strict=True)]
    states = await jobs.cancel_all(ids, reason=request.reason, actor=call.actor, request_ids=request_ids)
    return [
        _outcome(
            view,
            state if isinstance(state, str) else "",
            state if isinstance(state, InterlockError) else None,
        )
        for view, state in zip(views, states, strict=True)
    ]


def _outcome(view: JobView, state: str, came: str | InterlockError | None) -> Done | Undone:
    if isinstance(came, InterlockError):
        return Undone(id=view.id, code=came.code, error=came.sentence)
    return Done(id=view.id, state=state, new_id=came)


MOST = 1_000
"""Maximum number of failed jobs to examine."""
MOST_BYTES = 8_000_000
"""Maximum bytes of failed jobs to read: inputs may be large."""
PAGE = 100
SHOWN = 10
_SIGN = 300
"""Number of leading characters that identify an error."""

_VARIES = re.compile(r"0x[0-9a-fA-F]+|[0-9a-f]{8,}|\d+")


@handles(api.LIST_ALIKE)
async def list_alike(call: Call) -> api.Alike:
    """Search the newest failed jobs for the same failure."""
    job = await job_of(call)
    if job.failure is None or job.state != FAILED:
        return api.Alike(number=0, looked_at=0)
    sign = (job.task, job.failure.failure_class, _error_signature(job.failure.error))
    found = {job.id: job.completed_at or job.updated_at}
    looked_at, more = 0, False
    async for record in _newest_failed(call):
        if record is None:
            more = True
            break
        if not call.principal.sees(record.queue or ""):
            continue
        looked_at += 1
        seen = failure_fields(record)
        if (seen.task, seen.failure_class, _error_signature(seen.error)) == sign:
            found[record.id] = seen.failed_at or record.updated_at
    ids = sorted(found, key=lambda each: found[each], reverse=True)
    shown = ids if len(ids) <= SHOWN else [*ids[: SHOWN - 1], ids[-1]]
    return api.Alike(
        number=len(ids), looked_at=looked_at, more=more, since=min(found.values()), ids=tuple(shown)
    )


async def _newest_failed(call: Call) -> AsyncIterator[Record | None]:
    """Yield failed jobs up to the limits, then None if there are older ones."""
    number, size, cursor = 0, 0, ""
    while True:
        query = Query(kind=JOB.name, states=(FAILED,), limit=min(PAGE, MOST - number), cursor=cursor)
        page = await call.parts.store.find(query)
        for record in page.records:
            number, size = number + 1, size + record.size
            yield record
        cursor = page.cursor
        if not cursor:
            return
        if number >= MOST or size >= MOST_BYTES:
            yield None
            return


def _error_signature(error: str) -> str:
    """Return an error with its variable parts replaced, such as numbers."""
    return _VARIES.sub("#", error[:_SIGN])


@handles(api.GET_JOB_TREE)
async def get_tree(call: Call) -> TreeView:
    """Return a job and its visible descendants."""
    job = await job_of(call)
    sees = call.principal.sees if call.principal.scoped else None
    tree = await call.parts.runtime.jobs.tree(job.id, most=call.query.limit, sees=sees)
    failures = [node.failure.error for node in tree.nodes if node.failure is not None]
    redactor = await redactor_of(call, [*(node.parent_job_id for node in tree.nodes), *failures])
    nodes = [
        msgspec.structs.replace(
            node, parent_job_id=redactor.id(node.parent_job_id), failure=redactor.failure(node.failure)
        )
        for node in tree.nodes
    ]
    return msgspec.structs.replace(tree, nodes=tuple(nodes))


@handles(api.SUBMIT_CHILDREN)
async def submit_children(call: Call) -> Born:
    """Submit children of the attempt that holds the lease."""
    body: NewChildren = call.body
    call.principal.need_queues(spec.queue for spec in body.jobs)
    if call.principal.scoped:
        for other in named_in(body.jobs):
            await job_of(call, other)
    need_own_keys(call, body.jobs)
    runner_id = known_as(call.principal, body.runner_id)
    token = lease_of(call.principal, body.token)
    return Born(ids=await call.parts.runtime.trees.submit(token, runner_id, body.name, body.jobs))


@handles(api.LIST_CHILDREN)
async def list_children(call: Call) -> ChildPage:
    """Return the children of the job that holds the lease, with their results."""
    token, runner_id = (call.headers.get(name.lower(), "") for name in (LEASE, RUNNER))
    token, known = lease_of(call.principal, token), known_as(call.principal, runner_id)
    sees = call.principal.sees if call.principal.scoped else None
    page = await call.parts.runtime.trees.children(token, known, await place_of_cursor(call), sees)
    return msgspec.structs.replace(page, cursor=await cursor_of_place(call, page.cursor))


@handles(api.LIST_PREDECESSORS)
async def list_predecessors(call: Call) -> PredecessorPage:
    """Return the jobs that the job of the lease follows, with results."""
    token, runner_id = (call.headers.get(name.lower(), "") for name in (LEASE, RUNNER))
    token, known = lease_of(call.principal, token), known_as(call.principal, runner_id)
    sees = call.principal.sees if call.principal.scoped else None
    page = await call.parts.runtime.followers.predecessors(token, known, await place_of_cursor(call), sees)
    return msgspec.structs.replace(page, cursor=await cursor_of_place(call, page.cursor))


@handles(api.LIST_QUEUES)
async def list_queues(call: Call) -> api.QueueList:
    """Return the queues that the principal may see."""
    return api.QueueList(queues=await call.parts.queue_board.take(frozenset(call.principal.queues)))


def hold_handler(verb: str) -> Callable[[Call], Awaitable[QueueHold]]:
    """Return a handler that pauses or resumes a queue."""

    async def handle(call: Call) -> QueueHold:
        body: api.QueueRequest = call.body
        call.principal.need_queues([body.queue])
        act = getattr(call.parts.runtime.queues, verb)
        held: QueueHold = await act(
            body.queue, reason=body.reason, actor=call.actor, request_id=call.request_id
        )
        call.parts.queue_board.forget()
        return held

    return handle


handles(api.PAUSE_QUEUE)(hold_handler("pause"))
handles(api.RESUME_QUEUE)(hold_handler("resume"))
