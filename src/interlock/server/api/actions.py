"""Doing something with every job that a filter means."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from interlock.errors import InterlockError, RequestIdReused, UnknownJob
from interlock.lifecycles import job
from interlock.server.api.visibility import every_job, filter_of
from interlock.server.bulk import act_once, answer_of, part_of
from interlock.server.messages import ActionAnswer, ActionRequest, Done, Undone
from interlock.server.routes import Call, Confined, Route
from interlock.systems.access.principals import Role
from interlock.wire.filter_words import BadFilter
from interlock.wire.jobs import JobView

ENDPOINT = "actions"


async def act(call: Call) -> ActionAnswer:
    """Find them, do it with each, and say what came of it."""
    return await act_once(call, ENDPOINT, call.body, partial(_act, call))


async def _act(call: Call) -> ActionAnswer:
    asked: ActionRequest = call.body
    views, more = await _matching(call, asked)
    if asked.dry_run:
        done = tuple(Done(id=view.id, state=view.state) for view in views)
        return ActionAnswer(action=asked.action, dry_run=True, done=done, more=more)
    return answer_of(asked.action, await _all(call, asked, views), more=more)


async def _matching(call: Call, asked: ActionRequest) -> tuple[list[JobView], bool]:
    """Only those with which it can be done at all: what has ended is not stopped, what runs not redone."""
    ended = asked.action == "retry"
    states = [str(state) for state in job.JOB.states if (state in job.ENDED) is ended]
    wanted = filter_of(call, asked.filter).among(states)
    if not wanted.wanted_states:
        return [], False
    found = [view async for view in every_job(call, wanted, asked.limit)]
    return [view for view in found if view is not None], None in found


async def _all(call: Call, asked: ActionRequest, views: Sequence[JobView]) -> list[Done | Undone]:
    jobs, ids = call.parts.runtime.jobs, [view.id for view in views]
    request_ids = [part_of(call.request_id, job_id) for job_id in ids]
    if asked.action == "retry":
        made = await jobs.retry_all(ids, actor=call.actor, request_ids=request_ids)
        return [_outcome(view, view.state, new) for view, new in zip(views, made, strict=True)]
    states = await jobs.cancel_all(ids, reason=asked.reason, actor=call.actor, request_ids=request_ids)
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


ROUTES = (
    Route(
        method="POST",
        path="/api/jobs/actions",
        name="actOnJobs",
        summary="Cancel or retry every job that a filter means; with dry_run only say which.",
        handler=act,
        role=Role.OPERATOR,
        confined=Confined.HIDES,
        bodies=(ActionRequest,),
        repeatable=True,
        answer=ActionAnswer,
        errors=(BadFilter, RequestIdReused, UnknownJob),
        example={"filter": "state:failed queue:mail since:1h", "action": "retry", "dry_run": True},
    ),
)
