"""Children of a job whose handler is in a process of its own: it asks, and the worker does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from interlock.errors import InterlockError
from interlock.wire.jobs import JobSpec
from interlock.wire.trees import ChildView
from interlock.worker.context import Context
from interlock.worker.executors.orders import Ask, Told

A = TypeVar("A")


class FarFamily:
    """In the process of the task: what is asked goes to the worker, which has the lease."""

    def __init__(self, ask: Callable[[str, Sequence[JobSpec]], Future[Told]]) -> None:
        self._ask = ask

    def submit(self, _: str, name: str, specs: Sequence[JobSpec]) -> Future[tuple[str, ...]]:
        """Have children submitted under a name."""
        return _then(self._ask(name, specs), lambda told: told.ids)

    def children(self, _: str) -> Future[tuple[ChildView, ...]]:
        """All children, oldest first."""
        return _then(self._ask("", ()), lambda told: told.children)


def _then(first: Future[Told], take: Callable[[Told], A]) -> Future[A]:
    second: Future[A] = Future()
    second.set_running_or_notify_cancel()

    def pass_on(done: Future[Told]) -> None:
        if (error := done.exception()) is not None:
            second.set_exception(error)
        else:
            second.set_result(take(done.result()))

    first.add_done_callback(pass_on)
    return second


async def answer(context: Context, asked: Ask) -> Told:
    """In the worker: do what was asked over there."""
    try:
        if asked.specs:
            return Told(asked.number, ids=await context.relay_submit(asked.name, asked.specs))
        return Told(asked.number, children=await context.relay_children())
    except InterlockError as error:
        return Told(asked.number, error=error.sentence, todo=error.todo)
