"""Submitting jobs."""

from __future__ import annotations

import msgspec

from interlock.errors import InvalidJob, RequestIdReused, TerminalState, TooLarge, UnknownJob
from interlock.server.api.visibility import job_of
from interlock.server.messages import ManyJobs, OneJob, Submitted
from interlock.server.requests import decode
from interlock.server.routes import Call, Confined, Link, Route
from interlock.systems.access.principals import NotAllowed, Role
from interlock.wire.jobs import JobSpec


class _Peek(msgspec.Struct):
    """As much as is needed to know whether it is one job or many."""

    jobs: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_PEEK = msgspec.json.Decoder(_Peek)
_ONE = msgspec.json.Decoder(OneJob)
_MANY = msgspec.json.Decoder(ManyJobs)


def read_submission(body: bytes) -> OneJob | ManyJobs:
    """One job, or several under `jobs`."""
    if decode(_PEEK, body).jobs is msgspec.UNSET:
        return decode(_ONE, body)
    return decode(_MANY, body)


async def submit(call: Call) -> Submitted:
    """Make them, all or none under a request id."""
    match call.body:
        case ManyJobs(jobs=jobs):
            specs: tuple[JobSpec, ...] = jobs
        case one:
            specs = (one.spec(),)
    call.principal.need_queues(spec.queue for spec in specs)
    if call.principal.scoped:
        for parent in {spec.parent_job_id for spec in specs if spec.parent_job_id}:
            await job_of(call, parent)
    ids = await call.parts.runtime.jobs.submit_many(specs, actor=call.actor, request_id=call.request_id)
    return Submitted(ids=tuple(ids), id=ids[0] if len(ids) == 1 else None)


ROUTES = (
    Route(
        method="POST",
        path="/api/jobs",
        name="submitJobs",
        summary="Submit one job, or up to 1,000 together.",
        handler=submit,
        role=Role.SUBMITTER,
        confined=Confined.NAMES,
        bodies=(OneJob, ManyJobs),
        read=read_submission,
        repeatable=True,
        answer=Submitted,
        status=201,
        errors=(InvalidJob, TooLarge, RequestIdReused, UnknownJob, TerminalState, NotAllowed),
        example={"task": "shop.send", "input": {"order": 17}, "queue": "mail", "request_id": "order-17"},
        answer_example={"id": "j_0123456789ab", "ids": ["j_0123456789ab"]},
        links=(
            Link("getJob", "job_id"),
            Link("getJobHistory", "job_id"),
            Link("explainJob", "job_id"),
            Link("getJobLogs", "job_id"),
            Link("cancelJob", "job_id"),
            Link("retryJob", "job_id"),
            Link("listAttempts", "job"),
        ),
    ),
)
