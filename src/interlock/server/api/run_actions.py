"""Doing something with every run that a filter means."""

from __future__ import annotations

from functools import partial

from interlock.errors import RequestIdReused
from interlock.lifecycles import run
from interlock.server.api.run_queries import page_of_runs
from interlock.server.bulk import act_once, answer_of, part_of, with_each
from interlock.server.messages import ActionAnswer, Done
from interlock.server.routes import Call, Route
from interlock.server.run_messages import RunActionRequest
from interlock.systems.access.principals import Role
from interlock.wire.filter_words import BadFilter
from interlock.wire.run_filters import read_run_filter

ENDPOINT = "run actions"


async def act(call: Call) -> ActionAnswer:
    """Find them, do it with each, and say what came of it."""
    return await act_once(call, ENDPOINT, call.body, partial(_act, call))


async def _act(call: Call) -> ActionAnswer:
    asked: RunActionRequest = call.body
    states, more = await _matching(call, asked)
    if asked.dry_run:
        done = tuple(Done(id=run_id, state=state) for run_id, state in states.items())
        return ActionAnswer(action=asked.action, dry_run=True, done=done, more=more)

    async def one(run_id: str) -> Done:
        runs, request_id = call.parts.runtime.runs, part_of(call.request_id, run_id)
        if asked.action == "rerun":
            new = await runs.rerun(run_id, asked.which, actor=call.actor, request_id=request_id)
            return Done(id=run_id, state=states[run_id], new_id=new.id)
        after = await runs.cancel(run_id, reason=asked.reason, actor=call.actor, request_id=request_id)
        return Done(id=run_id, state=after.state)

    return answer_of(asked.action, await with_each(states, one), more=more)


async def _matching(call: Call, asked: RunActionRequest) -> tuple[dict[str, str], bool]:
    """Only those with which it can be done at all: what has ended is not stopped, what runs not redone."""
    ended = asked.action == "rerun"
    states = [str(state) for state in run.RUN.states if (state in run.SETTLED) is ended]
    wanted = read_run_filter(asked.filter).among(states)
    if not wanted.wanted_states:
        return {}, False
    views, cursor = await page_of_runs(call, wanted, limit=asked.limit)
    return {view.id: view.state for view in views}, bool(cursor)


ROUTES = (
    Route(
        method="POST",
        path="/api/runs/actions",
        name="actOnRuns",
        summary="Cancel or do again every run that a filter means; with dry_run only say which.",
        handler=act,
        role=Role.OPERATOR,
        everything=True,
        bodies=(RunActionRequest,),
        repeatable=True,
        answer=ActionAnswer,
        errors=(BadFilter, RequestIdReused),
        example={"filter": "outcome:failed workflow:ci since:1d", "action": "rerun", "dry_run": True},
    ),
)
