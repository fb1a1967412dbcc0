"""The clients behind `Interlock.approvals`.

approvals, cursor = await il.approvals.list()
for one in approvals:
    print(one.id, one.question)
await il.approvals.approve(approvals[0].id, comment="looks good")
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypedDict, Unpack

from interlock.remote.interfaces import Services
from interlock.remote.waits import WaitsApi
from interlock.wire.waits import ApprovalView


class ReplyOptions(TypedDict, total=False):
    """Options of `approvals.approve` and `approvals.reject`."""

    comment: str
    request_id: str | None


class ApprovalsClient:
    """The approvals in a store, or of a server before one."""

    def __init__(self, here: Callable[[], Services], actor: str) -> None:
        self._here = here
        self._actor = actor

    @property
    def _waits(self) -> WaitsApi:
        return self._here().waits

    async def list(
        self, *, ended: bool = False, job_id: str = "", limit: int = 100, cursor: str = ""
    ) -> tuple[Sequence[ApprovalView], str]:
        """Return a page of approvals that wait, newest first, and the next cursor; with `ended` all."""
        return await self._waits.find(ended=ended, job_id=job_id, limit=limit, cursor=cursor)

    async def get(self, approval_id: str) -> ApprovalView:
        """Return an approval, by its id, or by the id of its job if only one of that waits."""
        return await self._waits.get(approval_id)

    async def approve(
        self, approval_id: str, *, comment: str = "", request_id: str | None = None
    ) -> ApprovalView:
        """Approve what a job waits for; the job goes on."""
        return await self._waits.approve(
            approval_id, comment=comment, actor=self._actor, request_id=request_id
        )

    async def reject(
        self, approval_id: str, *, comment: str = "", request_id: str | None = None
    ) -> ApprovalView:
        """Reject what a job waits for; its handler is told so."""
        return await self._waits.reject(
            approval_id, comment=comment, actor=self._actor, request_id=request_id
        )


class SyncApprovals:
    """`Interlock.approvals` for synchronous code."""

    def __init__(self, inner: ApprovalsClient, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._inner = inner
        self._run = run

    def list(
        self, *, ended: bool = False, job_id: str = "", limit: int = 100, cursor: str = ""
    ) -> tuple[Sequence[ApprovalView], str]:
        """Return a page of approvals that wait, newest first, and the next cursor; with `ended` all."""
        approvals = self._inner.list(ended=ended, job_id=job_id, limit=limit, cursor=cursor)
        found: tuple[Sequence[ApprovalView], str] = self._run(approvals)
        return found

    def get(self, approval_id: str) -> ApprovalView:
        """Return an approval, by its id, or by the id of its job if only one of that waits."""
        view: ApprovalView = self._run(self._inner.get(approval_id))
        return view

    def approve(self, approval_id: str, **how: Unpack[ReplyOptions]) -> ApprovalView:
        """Approve what a job waits for; the job goes on."""
        view: ApprovalView = self._run(self._inner.approve(approval_id, **how))
        return view

    def reject(self, approval_id: str, **how: Unpack[ReplyOptions]) -> ApprovalView:
        """Reject what a job waits for; its handler is told so."""
        view: ApprovalView = self._run(self._inner.reject(approval_id, **how))
        return view
