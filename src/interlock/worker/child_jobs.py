"""The children of a handler's job: submit them, list them, wait for them without a slot.

A handler that waits for its children ends: it releases its lease, with its checkpoint, and another attempt
runs it from its beginning once the children have ended. Submissions under the same names are idempotent, and
then waiting returns at once, with the outcomes.

Why: decisions 0206 and 0207.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, Protocol, TypeVar, overload

import msgspec

from interlock.errors import InterlockError, InvalidArguments, JobError, StoreUnavailable
from interlock.lifecycles import job
from interlock.wire.jobs import MAX_CHILDREN, ChildView, FailureView, JobSpec, belong_together
from interlock.wire.runner import Grant
from interlock.wire.waits import WaitAnswer, WaitRequest
from interlock.worker.codec import Work, decoder_of, spec_of
from interlock.worker.middleware import Chain
from interlock.worker.port import ChildJobPort, OrchestratorPort, PredecessorPort, SignalPort
from interlock.worker.waits import SignalWaiter, no_signals

if TYPE_CHECKING:
    from interlock.worker.composition import Composable
    from interlock.worker.context import Context
    from interlock.worker.signatures import ContextByName, TaskWithTheseArguments
    from interlock.worker.tasks import Task

P = ParamSpec("P")
T = TypeVar("T")

TRIES = 3
PAUSE_S = 0.5
MAX_BYTES = 700_000
"""Maximum bytes of one submission: a server accepts requests of a megabyte."""


class WaitsForChildren(BaseException):
    """Ends a handler that waits for children: it runs again when they have ended.

    A BaseException as `TaskCancelled` is, so that `except Exception` around one item of many does not
    turn it into a failure of that item.
    """


class Child:
    """A child of the job, or a job that it comes after, at the time of the query."""

    __slots__ = ("_view",)

    def __init__(self, view: ChildView) -> None:
        self._view = view

    def __repr__(self) -> str:
        return f"<job {self.id} of the task {self.task}, {self.state}>"

    @property
    def id(self) -> str:
        """The id of the job, as `submit` returned it."""
        return self._view.id

    @property
    def task(self) -> str:
        """The task that it executes."""
        return self._view.task

    @property
    def state(self) -> str:
        """The state of the job: COMPLETED, FAILED, CANCELED, or an unfinished one."""
        return self._view.state

    @property
    def ended(self) -> bool:
        """Whether it has ended, in any way."""
        return self.state in job.ENDED

    @property
    def ok(self) -> bool:
        """Whether it has completed, so that there is a result."""
        return self.state == job.COMPLETED

    @property
    def failure(self) -> FailureView | None:
        """The failure, if it failed."""
        return self._view.failure

    @property
    def cost(self) -> float | None:
        """The cost of its attempts."""
        return self._view.cost

    @overload
    def result(self, type: type[T]) -> T: ...

    @overload
    def result(self, type: Any = Any) -> Any: ...

    def result(self, type: Any = Any) -> Any:  # noqa: A002 - read as a sentence: result(type=Page)
        """Return its result; raise `JobError` if there is none."""
        if self.ok and isinstance(self._view.result, msgspec.Raw):
            return decoder_of(type)(self._view.result)
        why = self.failure.error if self.failure else self._view.stop_reason or "it has not ended"
        raise JobError(
            f"The job {self.id} is {self.state} and has no result: {why}",
            todo="Check `ok` first, or see `failure`.",
            facts={"job_id": self.id, "state": self.state},
        )


class ChildJobService(Protocol):
    """The interface of a context to the children of its job; calls can be awaited in any other thread."""

    def submit(self, token: str, name: str, specs: Sequence[JobSpec], /) -> Future[tuple[str, ...]]:
        """Submit children under a name."""
        ...

    def children(self, token: str, /) -> Future[tuple[ChildView, ...]]:
        """Return all children, oldest first."""
        ...

    def predecessors(self, token: str, /) -> Future[tuple[ChildView, ...]]:
        """Return all jobs that the job comes after, in their order."""
        ...

    def wait(self, request: WaitRequest, /) -> Future[WaitAnswer]:
        """Return the answer to a wait, or its state."""
        ...


class ChildJobContext(SignalWaiter):
    """The part of a context about the children of its job."""

    __slots__ = ("_child_jobs", "_grant", "_middleware", "_submissions")
    _child_jobs: ChildJobService
    _grant: Grant
    _middleware: Callable[[], Chain]
    _submissions: int

    @overload
    async def submit(
        self, work: Task[Concatenate[Context, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> str: ...

    @overload
    async def submit(self, work: Task[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> str: ...

    @overload
    async def submit(
        self, work: Task[..., Any], /, *args: Any, child_name: str | None, **kwargs: Any
    ) -> str: ...

    @overload  # matches no call: mypy names its parameter where the arguments fit no overload above
    async def submit(self, work: TaskWithTheseArguments, /, *args: Any, **kwargs: Any) -> str: ...

    @overload
    async def submit(
        self, work: ContextByName | JobSpec | str, /, *args: Any, child_name: str | None = None, **kwargs: Any
    ) -> str: ...

    async def submit(  # type: ignore[misc] # a task with a context by name is Work
        self, work: Work, /, *args: Any, child_name: str | None = None, **kwargs: Any
    ) -> str:
        """Submit a child of this job; return its id.

        A handler that runs again finds the same child: by `child_name`, or without one by the number of the
        submission. Options of the job: `task.options(...)`.
        """
        (made,) = await self.submit_many([spec_of(work, args, kwargs)], child_name=child_name)
        return made

    async def submit_many(self, specs: Sequence[JobSpec], *, child_name: str | None = None) -> list[str]:
        """Submit many children, idempotent as a whole.

        For example `[fetch.spec(page) for page in pages]`.
        """
        ids: list[str] = []
        specs = await self._middleware().submission(specs)
        for name, some in self._portions(specs, child_name):
            ids += await self.relay_submit(name, some)
        return ids

    @overload
    def submit_sync(
        self, work: Task[Concatenate[Context, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> str: ...

    @overload
    def submit_sync(self, work: Task[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> str: ...

    @overload
    def submit_sync(
        self, work: Task[..., Any], /, *args: Any, child_name: str | None, **kwargs: Any
    ) -> str: ...

    @overload  # matches no call: mypy names its parameter where the arguments fit no overload above
    def submit_sync(self, work: TaskWithTheseArguments, /, *args: Any, **kwargs: Any) -> str: ...

    @overload
    def submit_sync(
        self, work: ContextByName | JobSpec | str, /, *args: Any, child_name: str | None = None, **kwargs: Any
    ) -> str: ...

    def submit_sync(  # type: ignore[misc] # a task with a context by name is Work
        self, work: Work, /, *args: Any, child_name: str | None = None, **kwargs: Any
    ) -> str:
        """Submit a child, for a handler in a thread or a process."""
        (made,) = self.submit_many_sync([spec_of(work, args, kwargs)], child_name=child_name)
        return made

    def submit_many_sync(self, specs: Sequence[JobSpec], *, child_name: str | None = None) -> list[str]:
        """Submit many children, for a handler in a thread or a process."""
        ids: list[str] = []
        specs = self._middleware().submission_sync(specs)
        for name, some in self._portions(specs, child_name):
            ids += self._child_jobs.submit(self._grant.token, name, some).result()
        return ids

    async def compose(self, work: Composable[Any], *, child_name: str | None = None) -> list[str]:
        """Submit a chain, group or chord as children; return their ids.

        They are children of this job. See `interlock.chain`.
        """
        return await self.submit_many(work.specs(), child_name=child_name)

    def compose_sync(self, work: Composable[Any], *, child_name: str | None = None) -> list[str]:
        """Submit a composition, for a handler in a thread or a process."""
        return self.submit_many_sync(work.specs(), child_name=child_name)

    async def children(self) -> list[Child]:
        """Return the children of this job, oldest first."""
        return [Child(view) for view in await self.relay_children()]

    def children_sync(self) -> list[Child]:
        """Return the children, for a handler in a thread or a process."""
        return [Child(view) for view in self._child_jobs.children(self._grant.token).result()]

    async def wait_children(self) -> list[Child]:
        """Return the children of this job once all have ended, oldest first.

        While some have not, this does not return: the handler ends here and frees its slot, and runs again
        from its beginning when all have. That uses no retry.
        """
        return _all_ended(await self.children())

    def wait_children_sync(self) -> list[Child]:
        """Wait for the children, for a handler in a thread or a process."""
        return _all_ended(self.children_sync())

    async def predecessors(self) -> list[Child]:
        """Return the jobs that this job comes after, with their results.

        They are in the order in which they were named.
        """
        return [Child(view) for view in await self.relay_predecessors()]

    def predecessors_sync(self) -> list[Child]:
        """Return the jobs before this one, for a handler in a thread or a process."""
        return [Child(view) for view in self._child_jobs.predecessors(self._grant.token).result()]

    async def relay_predecessors(self) -> tuple[ChildView, ...]:
        """Return the jobs before this one for a handler in another process."""
        return await asyncio.wrap_future(self._child_jobs.predecessors(self._grant.token))

    def _wait(self, request: WaitRequest) -> Future[WaitAnswer]:
        return self._child_jobs.wait(msgspec.structs.replace(request, token=self._grant.token))

    async def relay_wait(self, request: WaitRequest) -> WaitAnswer:
        """Wait for a handler in another process, which has numbered its waits."""
        return await asyncio.wrap_future(self._wait(request))

    async def relay_submit(self, name: str, specs: Sequence[JobSpec]) -> tuple[str, ...]:
        """Submit children for a handler in another process.

        That process has split and named them.
        """
        return await asyncio.wrap_future(self._child_jobs.submit(self._grant.token, name, specs))

    async def relay_children(self) -> tuple[ChildView, ...]:
        """Return the children for a handler in another process."""
        return await asyncio.wrap_future(self._child_jobs.children(self._grant.token))

    def _portions(
        self, specs: Sequence[JobSpec], child_name: str | None
    ) -> Iterator[tuple[str, list[JobSpec]]]:
        """Yield portions of a submission under stable names.

        Each run of the handler makes the same portions.
        """
        parts = list(_cut(specs))
        if len(parts) > 1 and belong_together(specs):
            raise InvalidArguments(
                f"{len(specs)} children do not fit into one request, and some come after others of it.",
                todo="Submit fewer at once, or name those that they come after by their ids.",
                facts={"children": len(specs), "most": MAX_CHILDREN},
            )
        self._submissions += 1
        name = f"#{self._submissions}" if child_name is None else child_name
        for number, some in enumerate(parts):
            yield (f"{name} {number + 1}" if number else name), some


def _cut(specs: Sequence[JobSpec]) -> Iterator[list[JobSpec]]:
    some: list[JobSpec] = []
    size = 0
    for spec in specs:
        bytes_more = len(msgspec.json.encode(spec))
        if some and (len(some) == MAX_CHILDREN or size + bytes_more > MAX_BYTES):
            yield some
            some, size = [], 0
        some.append(spec)
        size += bytes_more
    if some:
        yield some


def _all_ended(children: list[Child]) -> list[Child]:
    if all(child.ended for child in children):
        return children
    raise WaitsForChildren


class ChildJobs:
    """The children of all jobs of a worker; requests are made on its event loop."""

    def __init__(self, port: Callable[[], OrchestratorPort], runner_id: str) -> None:
        self._port = port
        self._runner_id = runner_id
        self.loop: asyncio.AbstractEventLoop | None = None

    def submit(self, token: str, name: str, specs: Sequence[JobSpec]) -> Future[tuple[str, ...]]:
        """Submit children under a name."""
        return asyncio.run_coroutine_threadsafe(self._submit(token, name, specs), self._running())

    def children(self, token: str) -> Future[tuple[ChildView, ...]]:
        """Return all children, oldest first."""
        return asyncio.run_coroutine_threadsafe(self._children(token), self._running())

    def predecessors(self, token: str) -> Future[tuple[ChildView, ...]]:
        """Return all jobs that the job comes after, in their order."""
        return asyncio.run_coroutine_threadsafe(self._predecessors(token), self._running())

    def wait(self, request: WaitRequest) -> Future[WaitAnswer]:
        """Return the answer to a wait, or its state."""
        return asyncio.run_coroutine_threadsafe(self._waited(request), self._running())

    def _running(self) -> asyncio.AbstractEventLoop:
        if self.loop is None:
            raise StoreUnavailable("The worker has not started yet.", todo="Try again a little later.")
        return self.loop

    async def _submit(self, token: str, name: str, specs: Sequence[JobSpec]) -> tuple[str, ...]:
        """Submit with retries: submissions under a name are idempotent."""
        return await _tried(
            lambda: self._child_job_port().submit_children(token, self._runner_id, name, specs)
        )

    async def _children(self, token: str) -> tuple[ChildView, ...]:
        found: list[ChildView] = []
        cursor = ""
        while True:
            page = await _tried(partial(self._child_job_port().children, token, self._runner_id, cursor))
            found += page.children
            if not (cursor := page.cursor):
                return tuple(found)

    async def _predecessors(self, token: str) -> tuple[ChildView, ...]:
        port = self._port()
        if not isinstance(port, PredecessorPort):
            raise no_child_jobs()
        found: list[ChildView] = []
        cursor = ""
        while True:
            page = await _tried(partial(port.predecessors, token, self._runner_id, cursor))
            found += page.jobs
            if not (cursor := page.cursor):
                return tuple(found)

    async def _waited(self, request: WaitRequest) -> WaitAnswer:
        """Wait with retries: a wait has a number, so it is idempotent."""
        request = msgspec.structs.replace(request, runner_id=self._runner_id)
        return await _tried(lambda: self._signal_port().await_signal(request))

    def _signal_port(self) -> SignalPort:
        port = self._port()
        if not isinstance(port, SignalPort):
            raise no_signals()
        return port

    def _child_job_port(self) -> ChildJobPort:
        port = self._port()
        if not isinstance(port, ChildJobPort):
            raise no_child_jobs()
        return port


async def _tried(attempt: Callable[[], Awaitable[T]]) -> T:
    """Repeat an idempotent request while the store does not answer."""
    for _ in range(TRIES - 1):
        try:
            return await attempt()
        except StoreUnavailable:
            await asyncio.sleep(PAUSE_S)
    return await attempt()


class NoChildJobs:
    """For a context without a worker."""

    def submit(self, _: str, __: str, ___: Sequence[JobSpec]) -> NoReturn:
        """Raise: there is no worker."""
        raise no_child_jobs()

    def children(self, _: str) -> NoReturn:
        """Raise: there is no worker."""
        raise no_child_jobs()

    def predecessors(self, _: str) -> NoReturn:
        """Raise: there is no worker."""
        raise no_child_jobs()

    def wait(self, _: WaitRequest) -> NoReturn:
        """Raise: there is no worker."""
        raise no_signals()


def no_child_jobs() -> InterlockError:
    """Return the error of a context without a worker."""
    return JobError(
        "Children cannot be submitted here: no worker executes this handler.",
        todo="Do it in a job that a worker executes; in tests use `interlock.testing.memory_interlock`.",
    )


NO_CHILD_JOBS = NoChildJobs()
