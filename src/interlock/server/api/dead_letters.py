"""Routes of dead letters: list and show them; retry them, also edited, or discard them."""

from __future__ import annotations

from functools import partial

import msgspec

from interlock.api import dead_letters as api
from interlock.api.jobs import JobsQuery, Submitted
from interlock.api.messages import ActionAnswer, Done
from interlock.server.api.visibility import cursor_of_place, filter_of, job_of, place_of_cursor, shaped, shown
from interlock.server.bulk import act_once, answer_of, part_of
from interlock.server.routes import Call, handles
from interlock.systems.orchestrator.dead_letters import DeadLetterService
from interlock.wire.jobs import DeadLetterView

ENDPOINT = "actions on dead letters"
PAGES = 20
"""Maximum number of pages of failed jobs that one action searches."""


@handles(api.LIST_DEAD_LETTERS)
async def list_letters(call: Call) -> api.DeadLetterPage:
    """Return a page of the dead letters that match a filter."""
    query: JobsQuery = call.query
    wanted = filter_of(call, query.q)
    letters, cursor = await _letters(call).find(wanted, limit=query.limit, cursor=await place_of_cursor(call))
    seen = [await _seen(call, letter) for letter in letters]
    return api.DeadLetterPage(letters=tuple(seen), cursor=await cursor_of_place(call, cursor))


@handles(api.GET_DEAD_LETTER)
async def get_letter(call: Call) -> DeadLetterView:
    """Return a dead letter, also one that was retried or discarded."""
    return await _seen(call, await _letters(call).get(await _own(call)))


@handles(api.RETRY_DEAD_LETTER)
async def retry_letter(call: Call) -> Submitted:
    """Do it again, as a new job."""
    body: api.RetryLetter = call.body
    new_id = await _letters(call).retry(
        await _own(call),
        input=body.input if isinstance(body.input, msgspec.Raw) else None,
        reason=body.reason,
        actor=call.actor,
        request_id=call.request_id,
    )
    return Submitted(ids=(new_id,), id=new_id)


@handles(api.DISCARD_DEAD_LETTER)
async def discard_letter(call: Call) -> DeadLetterView:
    """Discard a dead letter, and return it."""
    body: api.DiscardLetter = call.body
    letter = await _letters(call).discard(
        await _own(call), reason=body.reason, actor=call.actor, request_id=call.request_id
    )
    return await _seen(call, letter)


@handles(api.ACT_ON_DEAD_LETTERS)
async def act(call: Call) -> ActionAnswer:
    """Apply an action to all matching dead letters; return the results."""
    return await act_once(call, ENDPOINT, call.body, partial(_act, call))


async def _act(call: Call) -> ActionAnswer:
    body: api.LettersRequest = call.body
    letters, more = await _matching(call, body)
    if body.dry_run:
        done = tuple(Done(id=letter.id, state=letter.state) for letter in letters)
        return ActionAnswer(action=body.action, dry_run=True, done=done, more=more)
    outcomes = await _letters(call).act(
        body.action,
        letters,
        reason=body.reason,
        actor=call.actor,
        request_id=partial(part_of, call.request_id),
    )
    return answer_of(body.action, outcomes, more=more)


async def _matching(call: Call, request: api.LettersRequest) -> tuple[list[DeadLetterView], bool]:
    wanted, found, cursor = filter_of(call, request.filter), list[DeadLetterView](), ""
    for _ in range(PAGES):
        some, cursor = await _letters(call).find(wanted, limit=request.limit - len(found), cursor=cursor)
        found += some
        if not cursor or len(found) >= request.limit:
            break
    return found, bool(cursor)


async def _own(call: Call) -> str:
    """Return the id in the address.

    A job that the token does not see is not there.
    """
    return (await job_of(call)).id if call.principal.scoped else shaped(call.path["job_id"])


async def _seen(call: Call, letter: DeadLetterView) -> DeadLetterView:
    (view,) = await shown(call, [letter.job])
    return msgspec.structs.replace(letter, job=view)


def _letters(call: Call) -> DeadLetterService:
    return call.parts.runtime.dead_letters
