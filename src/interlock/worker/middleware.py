"""Middleware: code of yours around every handler and before every submission.

    @middleware
    def log_context(ctx: Context) -> Iterator[None]:
        with bound(job_id=ctx.job_id, tenant=ctx.metadata.get("tenant")):
            yield

    @middleware
    class Tenant:
        def submit(self, spec: JobSpec) -> JobSpec:
            return spec.with_metadata(tenant=current_tenant.get())

        async def handle(self, ctx: Context) -> AsyncIterator[None]:
            async with database.as_tenant(ctx.metadata["tenant"]):
                yield

Around a handler a middleware is a context manager, written as a generator with one `yield`: an exception of
the handler is raised there, and one of the middleware is an error of the handler. The first one is the
outermost. A `def` generator runs where the handler runs: in the event loop, in its thread, or in its process.
An `async def` generator runs in the event loop of the worker, also around a handler in a thread, and around
a handler in a process of its own in an event loop of that process.

A middleware sees each job alone: its values of context variables are gone with the job, also where many
jobs are executed in one go (`cohorts`).

Why: decision 0411.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from interlock.errors import CannotLoad, InvalidArguments
from interlock.wire.jobs import JobSpec
from interlock.worker.codec import with_json
from interlock.worker.imports import cannot_load, import_named

if TYPE_CHECKING:
    from interlock.worker.context import Context

Manager: TypeAlias = AbstractContextManager[Any] | AbstractAsyncContextManager[Any]
Around: TypeAlias = "Callable[[Context], Manager]"
Submit: TypeAlias = Callable[[JobSpec], JobSpec | Awaitable[JobSpec]]
AwaitWithin: TypeAlias = Callable[[Coroutine[Any, Any, Any], contextvars.Context], Any]
"""Runs a coroutine in a context to its end, from code that is not async."""


class Layer(msgspec.Struct, frozen=True):
    """One middleware."""

    address: str
    """`module:name`, by which another process finds it."""
    handle: Around | None = None
    submit: Submit | None = None
    waits: bool = False
    """Whether it is an async context manager around handlers."""
    importable: bool = True
    """False for an object: only a function or a class has a name that can be imported."""


class Chain:
    """Middleware in its order, the outermost first."""

    __slots__ = ("_handles", "_submit", "layers", "waits", "wraps")

    def __init__(self, layers: Sequence[Layer] = ()) -> None:
        once = {layer.address: layer for layer in reversed(layers)}
        self.layers: tuple[Layer, ...] = tuple(once.values())[::-1]
        """Each once, at its first place."""
        self._handles = tuple(layer.handle for layer in self.layers if layer.handle is not None)
        self._submit = tuple(layer for layer in self.layers if layer.submit is not None)
        self.waits: bool = any(layer.waits for layer in self.layers)
        """Whether one of them is async around handlers."""
        self.wraps: bool = bool(self._handles)
        """Whether any of them is around handlers."""

    def addresses(self) -> list[str]:
        """Return the names by which a process of its own finds them."""
        for layer in self.layers:
            if not layer.importable or "<locals>" in layer.address:
                raise CannotLoad(
                    f"The middleware {layer.address} cannot be used around a handler in a process of its "
                    "own.",
                    todo="Define it as a function or a class at the top of a module.",
                    facts={"middleware": layer.address},
                )
        return [layer.address for layer in self.layers]

    # Around a handler

    def call(self, ctx: Context, handler: Callable[[], Any]) -> Any:
        """Call a handler that is not async; none of the middleware may be."""
        value, stop = None, _Stop()
        with ExitStack() as stack:
            for around in self._handles:
                manager: Any = around(ctx)
                stack.enter_context(manager)
            with stop:
                value = handler()
        stop.check()
        return value

    def call_waiting(self, ctx: Context, handler: Callable[[], Any], wait: AwaitWithin) -> Any:
        """Call a handler that is not async, with async middleware around it.

        All of them share a context, so that the handler sees the context variables that they set. It is
        entered for each step alone: an event loop cannot use a context that a thread is in.
        """
        shared, value, stop = contextvars.copy_context(), None, _Stop()
        with ExitStack() as stack:
            for around in self._handles:
                stack.enter_context(_Step(shared.run(around, ctx), shared, wait))
            with stop:
                value = shared.run(handler)
        stop.check()
        return value

    async def drive(self, ctx: Context, handler: Callable[[], Any]) -> Any:
        """Call a handler and wait for its result, in an event loop."""
        value, stop = None, _Stop()
        async with AsyncExitStack() as stack:
            for around in self._handles:
                manager: Any = around(ctx)
                if isinstance(manager, AbstractAsyncContextManager):
                    await stack.enter_async_context(manager)
                else:
                    stack.enter_context(manager)
            with stop:
                value = handler()
                if inspect.isawaitable(value):
                    value = await value
        stop.check()
        return value

    # Before a submission

    async def submission(self, specs: Sequence[JobSpec]) -> Sequence[JobSpec]:
        """Return the specs as they are submitted, with inputs as JSON."""
        specs = [with_json(spec) for spec in specs]
        if not self._submit:
            return specs
        return [await self._submitted(spec) for spec in specs]

    def submission_sync(self, specs: Sequence[JobSpec]) -> Sequence[JobSpec]:
        """Do the same in a thread without an event loop."""
        submission = self.submission(specs)
        if any(inspect.iscoroutinefunction(layer.submit) for layer in self._submit):
            return asyncio.run(submission)
        try:
            submission.send(None)
        except StopIteration as done:
            made: Sequence[JobSpec] = done.value
            return made
        raise AssertionError("a submission without any async middleware has not ended with its first step")

    async def _submitted(self, spec: JobSpec) -> JobSpec:
        for layer in self._submit:
            assert layer.submit is not None
            made: Any = layer.submit(spec)
            if inspect.isawaitable(made):
                made = await made
            if not isinstance(made, JobSpec):
                raise InvalidArguments(
                    f"The middleware {layer.address} returned {type(made).__name__} for a submission of "
                    f"{spec.task}, and should return a JobSpec.",
                    todo="Return the spec, changed or not: return spec.with_metadata(tenant=...).",
                    facts={"middleware": layer.address, "task": spec.task},
                )
            spec = with_json(made)
        return spec


NO_MIDDLEWARE = Chain()


def no_middleware() -> Chain:
    """Return no middleware."""
    return NO_MIDDLEWARE


class _Stop:
    """Remembers that a handler stops or waits: a middleware may deal with an error, but not with that."""

    def __init__(self) -> None:
        self._error: BaseException | None = None

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._error = error

    def check(self) -> None:
        """Raise the swallowed error."""
        if self._error is not None and not isinstance(self._error, Exception):
            raise self._error


class _Step(AbstractContextManager[Any]):
    """A middleware, entered and left in a context that is shared with the handler."""

    def __init__(self, manager: Manager, shared: contextvars.Context, wait: AwaitWithin) -> None:
        self._manager, self._shared, self._wait = manager, shared, wait

    def __enter__(self) -> Any:
        if isinstance(self._manager, AbstractAsyncContextManager):
            return self._wait(self._manager.__aenter__(), self._shared)
        return self._shared.run(self._manager.__enter__)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        left: bool | None
        if isinstance(self._manager, AbstractAsyncContextManager):
            left = self._wait(self._manager.__aexit__(kind, error, trace), self._shared)
        else:
            left = self._shared.run(self._manager.__exit__, kind, error, trace)
        return left


def waiting_on(loop: asyncio.AbstractEventLoop) -> AwaitWithin:
    """Return a function that runs a coroutine in the loop of another thread."""

    def wait(coroutine: Coroutine[Any, Any, Any], context: contextvars.Context) -> Any:
        future: Future[Any] = Future()

        def start() -> None:
            task = loop.create_task(coroutine, context=context)
            task.add_done_callback(functools.partial(_pass_on, future))

        try:
            loop.call_soon_threadsafe(start)
        except RuntimeError:  # the loop is closed: the worker is gone
            coroutine.close()
            raise
        return future.result()

    return wait


def _pass_on(future: Future[Any], task: asyncio.Task[Any]) -> None:
    if task.cancelled():
        future.set_exception(asyncio.CancelledError())
    elif (error := task.exception()) is not None:
        future.set_exception(error)
    else:
        future.set_result(task.result())


# From what users write to layers


def layer_of(thing: Any) -> Layer:
    """Return a middleware as it is used.

    It is a generator function, a class, or an object with these methods.
    """
    if inspect.isclass(thing):
        return _of_object(thing(), _address(thing), importable=True)
    if inspect.isroutine(thing):
        return Layer(_address(thing), handle=_manager_of(thing, _address(thing)), waits=_is_async(thing))
    return _of_object(thing, f"{_address(type(thing))} at {id(thing):x}", importable=False)


def _of_object(thing: object, address: str, *, importable: bool) -> Layer:
    handle, submit = getattr(thing, "handle", None), getattr(thing, "submit", None)
    if handle is None and not callable(submit):
        raise _refused(address, "it has neither handle(ctx) nor submit(spec)")
    return Layer(
        address,
        handle=None if handle is None else _manager_of(handle, address),
        submit=submit,
        waits=handle is not None and _is_async(handle),
        importable=importable,
    )


def _manager_of(function: Any, address: str) -> Around:
    made: Around
    if inspect.isasyncgenfunction(function):
        made = asynccontextmanager(function)
    elif inspect.isgeneratorfunction(function):
        made = contextmanager(function)
    elif _is_async(function) or inspect.isgeneratorfunction(_inner(function)):
        made = function  # it has a decorator of contextlib already
    else:
        raise _refused(address, "it does not yield")
    return made


def _is_async(function: Any) -> bool:
    return inspect.isasyncgenfunction(_inner(function))


def _inner(function: Any) -> Any:
    return inspect.unwrap(function) if callable(function) else function


def _address(thing: Any) -> str:
    return f"{thing.__module__}:{thing.__qualname__}"


def _refused(address: str, why: str) -> CannotLoad:
    return cannot_load(
        f"the middleware {address}",
        why,
        "Write a generator, `def name(ctx): ... yield ...`, or a class with `handle(self, ctx)` like that, "
        "`submit(self, spec)`, or both.",
    )


def load_middleware(names: Iterable[str]) -> list[Layer]:
    """Return the middleware of `package.module:name` or `file.py:name`.

    Their order is kept.
    """
    return [_loaded(name) for name in names]


def _loaded(name: str) -> Layer:
    module_name, _, path = name.partition(":")
    if not path:
        raise cannot_load(name, "it does not say which function or class", "Write module:name.")
    return layer_of(find_in(import_named(module_name), path, name))


def find_in(found: Any, path: str, name: str) -> Any:
    """Return the object at a dotted path in a module; `name` is for the error."""
    for part in path.split("."):
        if not hasattr(found, part):
            raise cannot_load(name, f"there is no {part} in it", "Name a function or a class of that module.")
        found = getattr(found, part)
    return found
