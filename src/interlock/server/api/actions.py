"""Doing something with every job that a filter means.

Each job is dealt with by itself, so one that refuses does not stop the others. Under a request id
each of them is done once: when the server dies half-way, the same request goes on where it stopped,
and once it is through, its answer is what a repeat gets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime

import msgspec

from interlock.engine.applying import Decision, failed
from interlock.errors import InterlockError, RequestIdReused, UnknownJob
from interlock.lifecycles import job
from interlock.server.api.seeing import every_job, filter_of
from interlock.server.declaring import Call, Route
from interlock.server.messages import ActionAnswer, ActionRequest, Done, Undone
from interlock.store.records import Answer, Commit, Record, Repeated, Request, RequestReused
from interlock.systems.access.principals import Role
from interlock.wire.filter_words import BadFilter
from interlock.wire.jobs import JobView

ENDPOINT = "actions"


async def act(call: Call) -> ActionAnswer:
    """Find them, do it with each, and say what came of it."""
    asked: ActionRequest = call.body
    if (before := await _answered_before(call, asked)) is not None:
        return before
    views, more = await _matching(call, asked)
    if asked.dry_run:
        done = tuple(Done(id=view.id, state=view.state) for view in views)
        return ActionAnswer(action=asked.action, dry_run=True, done=done, more=more)
    outcomes = await _all(call, asked, views)
    answer = ActionAnswer(
        action=asked.action,
        dry_run=False,
        done=tuple(outcome for outcome in outcomes if isinstance(outcome, Done)),
        refused=tuple(outcome for outcome in outcomes if isinstance(outcome, Undone)),
        more=more,
    )
    return await _recorded(call, asked, answer)


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
    jobs, ids = call.parts.household.jobs, [view.id for view in views]
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


async def _answered_before(call: Call, asked: ActionRequest) -> ActionAnswer | None:
    recorded = await call.parts.store.recall(call.request_id) if call.request_id else None
    if recorded is None:
        return None
    if (recorded.endpoint, recorded.fingerprint) != (ENDPOINT, _fingerprint(asked)):
        raise failed(RequestReused(recorded, _fingerprint(asked)))
    return msgspec.json.decode(recorded.answer.body, type=ActionAnswer)


async def _recorded(call: Call, asked: ActionRequest, answer: ActionAnswer) -> ActionAnswer:
    if call.request_id is None:
        return answer
    request = Request(
        id=call.request_id,
        endpoint=ENDPOINT,
        fingerprint=_fingerprint(asked),
        answer=Answer(body=msgspec.json.encode(answer)),
    )

    def decide(_: Sequence[Record | None], __: datetime) -> Decision[ActionAnswer]:
        return Decision(answer, Commit(request=request))

    applied = await call.parts.household.engine.apply([], decide)
    if isinstance(applied, Repeated):
        return msgspec.json.decode(applied.recorded.answer.body, type=ActionAnswer)
    return applied.answer


def part_of(request_id: str | None, job_id: str) -> str | None:
    """The id under which one job is dealt with."""
    if request_id is None:
        return None
    return hashlib.sha256(f"{request_id} {job_id}".encode()).hexdigest()[:32]


def _fingerprint(asked: ActionRequest) -> str:
    content = msgspec.structs.replace(asked, request_id=None)
    return hashlib.sha256(msgspec.json.encode((ENDPOINT, content))).hexdigest()[:32]


ROUTES = (
    Route(
        method="POST",
        path="/api/jobs/actions",
        name="actOnJobs",
        summary="Cancel or retry every job that a filter means; with dry_run only say which.",
        handler=act,
        role=Role.OPERATOR,
        bodies=(ActionRequest,),
        repeatable=True,
        answer=ActionAnswer,
        errors=(BadFilter, RequestIdReused, UnknownJob),
        example={"filter": "state:failed queue:mail since:1h", "action": "retry", "dry_run": True},
    ),
)
