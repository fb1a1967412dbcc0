"""Handlers that are coroutines, in the event loop.

Most of the price of a small coroutine is the task that drives it. A function without a single
`await` never waits, so it is run at once, without one. Whatever may wait gets a real task, because
timeouts, task groups and cancel scopes ask which task they are in.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dis
import sys
from collections.abc import Awaitable, Coroutine
from functools import lru_cache
from types import CodeType
from typing import Any

from interlock.worker.executors.executor import Ended
from interlock.worker.outcomes import Interrupted, Outcome, outcome_of, success_of
from interlock.worker.running_task import RunningTask

_WAITS = frozenset({"GET_AWAITABLE", "GET_AITER", "GET_ANEXT", "BEFORE_ASYNC_WITH"})
_EAGER: dict[str, Any] = {"eager_start": True} if sys.version_info >= (3, 12) else {}


class AsyncExecutor:
    """Runs coroutines; `kill` cancels them."""

    def __init__(self, *, max_result_bytes: int) -> None:
        self._max_result_bytes = max_result_bytes
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self.current: RunningTask | None = None
        """The handler that is being run without a task, for whoever wonders what blocks the loop."""

    def begin(self, running: RunningTask, ended: Ended) -> None:
        """Begin; a handler that never waits has ended when this returns."""
        assert running.context is not None
        self.current = running
        try:
            with running.context.active():
                awaitable = running.invoke()
                if running.span is None and never_waits(awaitable):
                    awaitable.send(None)
        except StopIteration as returned:
            outcome: Outcome = success_of(returned.value, max_bytes=self._max_result_bytes)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its outcome
            outcome = outcome_of(error)
        else:
            self._begin_task(running, awaitable, ended)
            return
        finally:
            self.current = None
        ended(running, outcome)

    def told(self, running: RunningTask) -> None:
        """The context has told it; a coroutine that waits for something else has time until `kill`."""

    def kill(self, running: RunningTask) -> bool:
        """Cancel the task."""
        task = running.handle
        return task is None or task.done() or task.cancel()

    def leave(self, running: RunningTask) -> None:
        """It was cancelled; should it go on nevertheless, the log will have said so."""

    async def close(self) -> None:
        """Cancel what is left, and give it a moment."""
        left = [task for task in self._tasks if not task.done()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=0.2)

    def _begin_task(self, running: RunningTask, coroutine: Awaitable[Any], ended: Ended) -> None:
        loop = asyncio.get_running_loop()
        driven = self._drive(running, coroutine)
        task: asyncio.Task[Outcome] = asyncio.Task(
            driven, loop=loop, name=running.grant.task, context=contextvars.copy_context(), **_EAGER
        )
        running.handle = task
        self._tasks[task] = None

        def done(task: asyncio.Task[Outcome]) -> None:
            self._tasks.pop(task, None)
            if task.cancelled():
                _discard(coroutine)
                ended(running, Interrupted())
            else:
                ended(running, task.result())

        if task.done():
            done(task)
        else:
            task.add_done_callback(done)

    async def _drive(self, running: RunningTask, coroutine: Awaitable[Any]) -> Outcome:
        assert running.context is not None
        spanning = running.span or contextlib.nullcontext()
        try:
            with running.context.active(), spanning:
                value = await coroutine
        except BaseException as error:  # noqa: BLE001 - see above
            return outcome_of(error)
        return success_of(value, max_bytes=self._max_result_bytes)


def _discard(awaitable: Awaitable[Any]) -> None:
    """Cancelled before its first step, so that nobody has begun it or ever will."""
    if isinstance(awaitable, Coroutine):
        awaitable.close()


def never_waits(coroutine: object) -> bool:
    """Whether a coroutine is of a function without any await, so that it cannot be suspended."""
    code = getattr(coroutine, "cr_code", None)
    return code is not None and _has_no_await(code)


@lru_cache(maxsize=4_096)
def _has_no_await(code: CodeType) -> bool:
    return not any(instruction.opname in _WAITS for instruction in dis.get_instructions(code))
