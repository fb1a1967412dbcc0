"""Looking at attempts, which are part of their jobs."""

from __future__ import annotations

from interlock.errors import UnknownJob
from interlock.server.api.visibility import job_of
from interlock.server.messages import AttemptList, AttemptsQuery
from interlock.server.problems import UnknownAttempt
from interlock.server.routes import Call, Confined, Link, Route
from interlock.systems.access.principals import Role
from interlock.wire.jobs import AttemptView


async def list_attempts(call: Call) -> AttemptList:
    """The attempts of one job."""
    asked: AttemptsQuery = call.query
    job = await job_of(call, asked.job)
    return AttemptList(job_id=job.id, attempts=job.attempts)


async def get_attempt(call: Call) -> AttemptView:
    """One attempt; its id begins with that of its job."""
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


ROUTES = (
    Route(
        method="GET",
        path="/api/attempts",
        name="listAttempts",
        summary="List the attempts of a job.",
        handler=list_attempts,
        role=Role.VIEWER,
        confined=Confined.HIDES,
        query=AttemptsQuery,
        answer=AttemptList,
        errors=(UnknownJob,),
        links=(Link("getAttempt", "attempt_id", "$response.body#/attempts/0/id"),),
    ),
    Route(
        method="GET",
        path="/api/attempts/{attempt_id}",
        name="getAttempt",
        summary="Show one attempt.",
        handler=get_attempt,
        role=Role.VIEWER,
        confined=Confined.HIDES,
        parameters={"attempt_id": "The id of an attempt: job.shard.index"},
        answer=AttemptView,
        errors=(UnknownAttempt,),
    ),
)
