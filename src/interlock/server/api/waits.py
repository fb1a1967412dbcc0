"""Routes of signals and approvals."""

from __future__ import annotations

import msgspec

from interlock.api import waits as api
from interlock.server.api.runner import known_as
from interlock.server.api.visibility import cursor_of_place, is_shaped, job_of, place_of_cursor, shaped
from interlock.server.authentication import lease_of
from interlock.server.routes import Call, handles
from interlock.systems.orchestrator.wait_records import unknown_approval
from interlock.systems.orchestrator.waits import Waits
from interlock.wire.waits import ApprovalView, SignalView, WaitAnswer, WaitRequest


@handles(api.SIGNAL_JOB)
async def signal_job(call: Call) -> SignalView:
    """Send a signal to a job."""
    body: api.NewSignal = call.body
    job_id = (await job_of(call)).id if call.principal.scoped else shaped(call.path["job_id"])
    return await _waits(call).signal(
        job_id, body.name, body.data, actor=call.actor, request_id=call.request_id
    )


@handles(api.LIST_APPROVALS)
async def list_approvals(call: Call) -> api.ApprovalPage:
    """Return a page of approvals of visible queues."""
    query: api.ApprovalsQuery = call.query
    found, cursor = await _waits(call).find(
        ended=query.ended, job_id=query.job_id, limit=query.limit, cursor=await place_of_cursor(call)
    )
    seen = tuple(view for view in found if call.principal.sees(view.queue))
    return api.ApprovalPage(approvals=seen, cursor=await cursor_of_place(call, cursor))


@handles(api.GET_APPROVAL)
async def get_approval(call: Call) -> ApprovalView:
    """Return an approval."""
    approval_id = await _named(call)
    return await _waits(call).get(approval_id)


@handles(api.APPROVE_APPROVAL)
async def approve(call: Call) -> ApprovalView:
    """Approve."""
    body: api.ReplyRequest = call.body
    return await _waits(call).approve(
        await _named(call),
        comment=body.comment,
        actor=call.actor,
        roles=call.principal.roles,
        request_id=call.request_id,
    )


@handles(api.REJECT_APPROVAL)
async def reject(call: Call) -> ApprovalView:
    """Reject."""
    body: api.ReplyRequest = call.body
    return await _waits(call).reject(
        await _named(call),
        comment=body.comment,
        actor=call.actor,
        roles=call.principal.roles,
        request_id=call.request_id,
    )


@handles(api.AWAIT_SIGNAL)
async def await_signal(call: Call) -> WaitAnswer:
    """Return the answer to a wait, or make the job of the lease wait."""
    body: WaitRequest = call.body
    token = lease_of(call.principal, body.token)
    runner_id = known_as(call.principal, body.runner_id)
    return await _waits(call).wait(msgspec.structs.replace(body, token=token, runner_id=runner_id))


async def _named(call: Call) -> str:
    """Return the id in the path.

    An approval that the token does not see is not there.
    """
    approval_id = call.path["approval_id"]
    if not is_shaped(approval_id):
        raise unknown_approval(approval_id[:64])
    if call.principal.scoped and not call.principal.sees((await _waits(call).get(approval_id)).queue):
        raise unknown_approval(approval_id)
    return approval_id


def _waits(call: Call) -> Waits:
    return call.parts.runtime.waits
