"""Waiting in a handler for a signal or for a person's approval.

paid = await ctx.wait_for("paid", timeout="2h")          # interlock job signal ID paid --data '{"sum": 3}'
if await ctx.approval("Deploy to production?"):          # interlock approval approve ID

The attempt ends while the job waits: it holds no slot and no lease, and costs no retry. The handler runs
again from its beginning when the answer has come, and gets the same answers in the same order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, TypeVar, overload

import msgspec

from interlock.errors import InvalidArguments, JobError, WaitTimeout
from interlock.wire.access import Role
from interlock.wire.waits import ApprovalAnswer, ApprovalQuestion, WaitAnswer, WaitRequest
from interlock.worker.codec import decoder_of
from interlock.worker.postponement import Duration, seconds_of

T = TypeVar("T")

WAITING, APPROVED, REJECTED, RECEIVED = "WAITING", "APPROVED", "REJECTED", "RECEIVED"


class WaitsForSignal(BaseException):
    """Ends a handler that waits for a signal or an approval: it runs again when there is an answer.

    A BaseException as `WaitsForChildren` is, so that `except Exception` does not swallow it.
    """

    def __init__(self, wait_id: str) -> None:
        super().__init__(wait_id)
        self.wait_id = wait_id


class SignalWaiter:
    """The part of a context about signals and approvals."""

    __slots__ = ("_waits_by_name",)
    _waits_by_name: dict[str, int] | None
    """Number of waits so far by name."""

    def _wait(self, request: WaitRequest) -> Future[WaitAnswer]:
        raise AssertionError(request)

    @overload
    async def wait_for(self, name: str, *, timeout: Duration | None = None, type: type[T]) -> T: ...

    @overload
    async def wait_for(self, name: str, *, timeout: Duration | None = None, type: Any = Any) -> Any: ...

    async def wait_for(self, name: str, *, timeout: Duration | None = None, type: Any = Any) -> Any:  # noqa: A002
        """Return the data of the next signal of this name.

        Raise `WaitTimeout` if none comes in time. While none has come this does not return: the handler ends
        here and frees its slot, and runs again from its beginning when one has. The first wait for a name
        gets its first signal, also in later attempts, and a signal that was sent before is kept. The default
        timeout is a week.
        """
        request = self._signal_wait(name, timeout)
        return _data(await asyncio.wrap_future(self._wait(request)), request, type)

    @overload
    def wait_for_sync(self, name: str, *, timeout: Duration | None = None, type: type[T]) -> T: ...

    @overload
    def wait_for_sync(self, name: str, *, timeout: Duration | None = None, type: Any = Any) -> Any: ...

    def wait_for_sync(self, name: str, *, timeout: Duration | None = None, type: Any = Any) -> Any:  # noqa: A002
        """Wait for a signal, for a handler in a thread or a process."""
        request = self._signal_wait(name, timeout)
        return _data(self._wait(request).result(), request, type)

    async def approval(
        self,
        question: str,
        *,
        name: str = "",
        approvers: Sequence[str] = (),
        role: Role | str = Role.OPERATOR,
        timeout: Duration | None = None,
    ) -> ApprovalAnswer:
        """Return the answer of a person, which is true if approved.

        Raise `WaitTimeout` if none comes. It waits as `wait_for` does. `approvers` are the names of the
        people allowed to answer: by default everyone with the `role` (`operator` or `admin`).
        """
        request = self._approval_wait(question, name, approvers, role, timeout)
        return _approval(await asyncio.wrap_future(self._wait(request)), request)

    def approval_sync(
        self,
        question: str,
        *,
        name: str = "",
        approvers: Sequence[str] = (),
        role: Role | str = Role.OPERATOR,
        timeout: Duration | None = None,
    ) -> ApprovalAnswer:
        """Wait for a person, for a handler in a thread or a process."""
        request = self._approval_wait(question, name, approvers, role, timeout)
        return _approval(self._wait(request).result(), request)

    def _signal_wait(self, name: str, timeout: Duration | None) -> WaitRequest:
        number = self._next_number(f"signal {name}")
        return WaitRequest(token="", runner_id="", name=name, number=number, timeout_s=_seconds(timeout))

    def _approval_wait(
        self,
        question: str,
        name: str,
        approvers: Sequence[str],
        role: Role | str,
        timeout: Duration | None,
    ) -> WaitRequest:
        if isinstance(approvers, str):
            approvers = (approvers,)
        try:
            text = ApprovalQuestion(text=question, approvers=tuple(approvers), role=Role(role))
        except ValueError:
            raise InvalidArguments(
                f"There is no role {role!r}.",
                todo=f"Use {Role.OPERATOR} or {Role.ADMIN}.",
                allowed=[Role.OPERATOR, Role.ADMIN],
                facts={"role": str(role)},
            ) from None
        number = self._next_number(f"approval {name}")
        return WaitRequest(
            token="", runner_id="", name=name, number=number, question=text, timeout_s=_seconds(timeout)
        )

    def _next_number(self, what: str) -> int:
        if self._waits_by_name is None:
            self._waits_by_name = {}
        self._waits_by_name[what] = number = self._waits_by_name.get(what, 0) + 1
        return number


def _seconds(timeout: Duration | None) -> float | None:
    return None if timeout is None else seconds_of(timeout, "wait for")


def _data(answer: WaitAnswer, request: WaitRequest, kind: Any) -> Any:
    _check(answer, request)
    data = answer.data if isinstance(answer.data, msgspec.Raw) else msgspec.Raw(b"null")
    return decoder_of(kind)(data)


def _approval(answer: WaitAnswer, request: WaitRequest) -> ApprovalAnswer:
    _check(answer, request)
    approved = answer.state == APPROVED
    return ApprovalAnswer(approved=approved, by=answer.by, comment=answer.comment, at=answer.at)


def _check(answer: WaitAnswer, request: WaitRequest) -> None:
    """Raise if there is no answer.

    The handler ends to wait for it, or the time is over.
    """
    if answer.state == WAITING:
        raise WaitsForSignal(answer.id)
    if answer.state in (APPROVED, REJECTED, RECEIVED):
        return
    what = f"signal {request.name}" if request.question is None else f"answer to {request.question.text!r}"
    raise WaitTimeout(
        f"No {what} has come in time.",
        todo="Catch WaitTimeout, or give it a longer timeout.",
        facts={"wait_id": answer.id, "state": answer.state},
    )


def no_signals() -> JobError:
    """Return the error of a context without a worker that can wait."""
    return JobError(
        "Signals cannot be awaited here: no worker executes this handler.",
        todo="Do it in a job that a worker executes; in tests use `interlock.testing.memory_interlock`.",
    )
