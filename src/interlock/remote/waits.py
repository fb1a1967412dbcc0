"""Signals and approvals over HTTP.

The server knows the actor by the token, so an `actor` that is named here is not passed on.
"""

from __future__ import annotations

import msgspec

from interlock.api import waits as api
from interlock.api.messages import MAX_PAGE
from interlock.remote.http_client import ApiClient
from interlock.wire.waits import ApprovalView, SignalView

NOTHING = msgspec.Raw(b"null")


class HttpWaits:
    """The signals and approvals behind a server."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def signal(
        self,
        job_id: str,
        name: str,
        data: msgspec.Raw = NOTHING,
        *,
        actor: str = "",
        request_id: str | None = None,
    ) -> SignalView:
        """Send a signal to a job; it is kept until the handler waits for it."""
        sent = api.NewSignal(name=name, data=data, request_id=request_id)
        return await self._client.call(api.SIGNAL_JOB, sent, job_id=job_id)

    async def get(self, approval_id: str) -> ApprovalView:
        """Return an approval by its id or that of its job.

        The id of a job is enough if only one of its approvals waits.
        """
        return await self._client.call(api.GET_APPROVAL, approval_id=approval_id)

    async def find(
        self, *, ended: bool = False, job_id: str = "", limit: int = 100, cursor: str = ""
    ) -> tuple[list[ApprovalView], str]:
        """Return a page of waiting approvals, newest first, and the next cursor."""
        query = api.ApprovalsQuery(ended=ended, job_id=job_id, limit=min(limit, MAX_PAGE), cursor=cursor)
        page = await self._client.call(api.LIST_APPROVALS, query)
        return list(page.approvals), page.cursor

    async def approve(
        self, approval_id: str, *, comment: str = "", actor: str = "", request_id: str | None = None
    ) -> ApprovalView:
        """Approve; the handler continues."""
        sent = api.ReplyRequest(comment=comment, request_id=request_id)
        return await self._client.call(api.APPROVE_APPROVAL, sent, approval_id=approval_id)

    async def reject(
        self, approval_id: str, *, comment: str = "", actor: str = "", request_id: str | None = None
    ) -> ApprovalView:
        """Reject an approval; the handler receives the answer."""
        sent = api.ReplyRequest(comment=comment, request_id=request_id)
        return await self._client.call(api.REJECT_APPROVAL, sent, approval_id=approval_id)
