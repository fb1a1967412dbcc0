"""The client behind `Interlock.within`: jobs in a transaction of yours.

async with connection.transaction():
    await connection.execute("INSERT INTO orders (id) VALUES ($1)", 17)
    await il.within(connection).submit(send_invoice, order=17)
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from interlock.store.transactions import (
    Steps,
    executor_for,
    executor_for_async,
    run_steps,
    run_steps_async,
)
from interlock.systems.orchestrator.ids import JobIds
from interlock.systems.orchestrator.transactions import completing, submitting
from interlock.systems.runtime import Runtime
from interlock.wire.jobs import JobSpec
from interlock.worker.codec import Work, encode, spec_of
from interlock.worker.context import Context
from interlock.worker.middleware import Chain
from interlock.worker.signatures import ContextByName, TaskWithTheseArguments
from interlock.worker.tasks import Task

P = ParamSpec("P")
T = TypeVar("T")


class TransactionSteps:
    """Operations of a transaction, as steps that the connection executes."""

    def __init__(self, services: Callable[[], Runtime], middleware: Callable[[], Chain], actor: str) -> None:
        self._services = services
        self.middleware = middleware
        self._actor = actor

    @property
    def store(self) -> object:
        """The store that is written to."""
        return self._services().store

    def submitting(self, specs: Sequence[JobSpec], request_id: str | None) -> Callable[[], Steps[list[str]]]:
        """Return the steps that submit jobs."""
        services = self._services()
        return partial(
            submitting,
            services.engine,
            specs,
            settings=services.settings,
            ids=JobIds(secrets.randbelow),
            actor=self._actor,
            request_id=request_id,
        )

    def completing(self, ctx: Context, result: object) -> Callable[[], Steps[None]]:
        """Return the steps that complete the job of a handler."""
        services = self._services()
        raw = ctx.mask.raw(encode(result, "result"))  # as the worker reports what the handler returns
        engine, settings = services.engine, services.settings
        return partial(completing, engine, ctx.lease_token, raw, settings=settings, cost=ctx.cost)


class TransactionClient:
    """Jobs in a transaction of yours: they are there when you commit, and were never there otherwise."""

    def __init__(self, deciding: TransactionSteps, transaction: Any) -> None:
        self._deciding = deciding
        self._transaction = transaction

    @overload
    async def submit(
        self, work: Task[Concatenate[Context, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> str: ...

    @overload
    async def submit(self, work: Task[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> str: ...

    @overload
    async def submit(
        self, work: Task[..., Any], /, *args: Any, request_id: str | None, **kwargs: Any
    ) -> str: ...

    @overload  # matches no call: mypy names its parameter where the arguments fit no overload above
    async def submit(self, work: TaskWithTheseArguments, /, *args: Any, **kwargs: Any) -> str: ...

    @overload
    async def submit(
        self, work: ContextByName | JobSpec | str, /, *args: Any, request_id: str | None = None, **kwargs: Any
    ) -> str: ...

    async def submit(  # type: ignore[misc] # a task with a context by name is Work
        self, work: Work, /, *args: Any, request_id: str | None = None, **kwargs: Any
    ) -> str:
        """Submit a job and return its id; it is visible after your commit."""
        if isinstance(work, Task) and work.request_id is not None:
            request_id = work.request_id if request_id is None else request_id
            work = work.options(request_id=None)
        return (await self.submit_many([spec_of(work, args, kwargs)], request_id=request_id))[0]

    async def submit_many(self, specs: Sequence[JobSpec], *, request_id: str | None = None) -> list[str]:
        """Submit up to 1,000 jobs and return their ids."""
        given = await self._deciding.middleware().submission(specs)
        return await self._run(self._deciding.submitting(given, request_id))

    async def complete(self, ctx: Context, result: T) -> T:
        """Complete the job of this handler, and return its result.

        The handler returns the result, too. Raises if the lease is not the live one any more: let that roll
        your transaction back.
        """
        await self._run(self._deciding.completing(ctx, result))
        return result

    async def _run(self, steps: Callable[[], Steps[T]]) -> T:
        executor = await executor_for_async(self._deciding.store, self._transaction)
        return await run_steps_async(executor, steps)


class SyncTransactionClient:
    """The same for synchronous code, in the thread of the caller."""

    def __init__(self, deciding: TransactionSteps, transaction: Any) -> None:
        self._deciding = deciding
        self._transaction = transaction

    @overload
    def submit(
        self, work: Task[Concatenate[Context, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> str: ...

    @overload
    def submit(self, work: Task[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> str: ...

    @overload
    def submit(self, work: Task[..., Any], /, *args: Any, request_id: str | None, **kwargs: Any) -> str: ...

    @overload  # matches no call: mypy names its parameter where the arguments fit no overload above
    def submit(self, work: TaskWithTheseArguments, /, *args: Any, **kwargs: Any) -> str: ...

    @overload
    def submit(
        self, work: ContextByName | JobSpec | str, /, *args: Any, request_id: str | None = None, **kwargs: Any
    ) -> str: ...

    def submit(  # type: ignore[misc] # a task with a context by name is Work
        self, work: Work, /, *args: Any, request_id: str | None = None, **kwargs: Any
    ) -> str:
        """Submit a job and return its id; it is visible after your commit."""
        if isinstance(work, Task) and work.request_id is not None:
            request_id = work.request_id if request_id is None else request_id
            work = work.options(request_id=None)
        return self.submit_many([spec_of(work, args, kwargs)], request_id=request_id)[0]

    def submit_many(self, specs: Sequence[JobSpec], *, request_id: str | None = None) -> list[str]:
        """Submit up to 1,000 jobs and return their ids."""
        given = self._deciding.middleware().submission_sync(specs)
        return self._run(self._deciding.submitting(given, request_id))

    def complete(self, ctx: Context, result: T) -> T:
        """Complete the job of this handler: see `TransactionClient.complete`."""
        self._run(self._deciding.completing(ctx, result))
        return result

    def _run(self, steps: Callable[[], Steps[T]]) -> T:
        return run_steps(executor_for(self._deciding.store, self._transaction), steps)
