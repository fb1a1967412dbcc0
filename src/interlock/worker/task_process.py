"""The process of one task, and its protocol with the worker: one JSON object per line.

    python -m interlock.worker.task_process FD

The process reads its order from the socket FD, executes one handler and exits. While the handler runs, one
thread receives the order to stop and another sends messages of the handler. Children of the job and
artifacts are requested from the worker, which has the lease. When the socket closes the worker is gone, and
the whole process group ends itself.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import importlib
import inspect
import os
import resource
import runpy
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias, TypeVar

import msgspec

from interlock.errors import CannotLoad, InterlockError, JobError
from interlock.processes import credentials
from interlock.wire.artifacts import ArtifactView
from interlock.wire.jobs import ChildView, JobSpec
from interlock.wire.runner import Failed, Grant, Progress, Succeeded, size_of
from interlock.wire.waits import WaitAnswer, WaitRequest
from interlock.worker import tasks
from interlock.worker.captured_output import OFF, records_captured
from interlock.worker.context import Context, HandlerServices, UnsentMessages
from interlock.worker.middleware import Chain, find_in, layer_of
from interlock.worker.outcomes import Interrupted, Snoozed, Yielded, outcome_of, success_of
from interlock.worker.tracing import continuing

MAIN = "__main__"


class RunOrder(msgspec.Struct, frozen=True, tag="run"):
    """The order to execute a task. The grant has no token: a handler has no use for it."""

    module: str
    name: str
    grant: Grant
    path: list[str]
    main: str | None = None
    """The file of the program, where a task or a middleware may have been defined."""
    memory_limit_bytes: int | None = None
    max_result_bytes: int = 262_144
    trace: dict[str, str] = {}
    """Trace context for the handler's spans; empty without tracing."""
    job_log_level: str = "info"
    """Minimum level of `logging` records to keep; `off` for none."""
    middleware: list[str] = []
    """By `module:name`, the outermost first."""


class StopOrder(msgspec.Struct, frozen=True, tag="stop"):
    """The order to stop the handler, with the reason."""

    reason: str


class HandlerReport(msgspec.Struct, frozen=True, tag="said", omit_defaults=True):
    """Messages of the handler."""

    progress: Progress | None = None
    checkpoint: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    log: tuple[tuple[str, str], ...] = ()
    """Level and text of each line."""
    missed: int = 0
    """Bytes of the log lost before these lines."""
    heartbeat: bool = False
    uploading: bool = False


class HandlerEnd(msgspec.Struct, frozen=True, tag="over"):
    """The end of the handler; without an outcome if it was interrupted."""

    outcome: Succeeded | Failed | None = None
    cost: float | None = None
    waits: bool = False
    """Whether it waits for the children of its job, or for an answer."""
    wait: str = ""
    """The wait that it waits for; empty for children."""
    snoozed: Snoozed | None = None
    """Result of a handler that postponed its job."""


class JobRequest(msgspec.Struct, frozen=True, tag="ask", omit_defaults=True):
    """A request about the children or a wait of the job; the answer has the same number."""

    number: int = 0
    name: str = ""
    specs: tuple[JobSpec, ...] = ()
    """Children to submit under the name; empty to list all."""
    before: bool = False
    """List the jobs that the job comes after instead."""
    wait: WaitRequest | None = None
    """Wait for this instead."""


class JobAnswer(msgspec.Struct, frozen=True, tag="told", omit_defaults=True):
    """The answer."""

    number: int
    ids: tuple[str, ...] = ()
    children: tuple[ChildView, ...] = ()
    wait: WaitAnswer | None = None
    error: str = ""
    todo: str = ""


class FileRequest(msgspec.Struct, frozen=True, tag="keep"):
    """A request to store a file under a name; the answer has the same number."""

    number: int
    name: str
    path: str


class FileAnswer(msgspec.Struct, frozen=True, tag="kept", omit_defaults=True):
    """The answer to a request to store a file."""

    number: int
    artifact: ArtifactView | None = None
    error: str = ""
    todo: str = ""


TaskOrder: TypeAlias = RunOrder | StopOrder | FileAnswer | JobAnswer
HandlerRequest: TypeAlias = FileRequest | JobRequest
HandlerMessage: TypeAlias = HandlerReport | HandlerEnd | HandlerRequest

read_order: Callable[[bytes], Any] = msgspec.json.Decoder(TaskOrder).decode
read_message: Callable[[bytes], Any] = msgspec.json.Decoder(HandlerMessage).decode
MAX_LINE_BYTES = 16 * 1024 * 1024


def line_of(message: TaskOrder | HandlerMessage) -> bytes:
    """Return a message as a line."""
    return msgspec.json.encode(message) + b"\n"


A = TypeVar("A")


class RemoteChildren:
    """Forwards requests about children from the task's process to the worker, which has the lease."""

    def __init__(self, request: Callable[[JobRequest], Future[JobAnswer]]) -> None:
        self._request = request

    def submit(self, _: str, name: str, specs: Sequence[JobSpec]) -> Future[tuple[str, ...]]:
        """Submit children under a name."""
        return _mapped(self._request(JobRequest(name=name, specs=tuple(specs))), lambda answer: answer.ids)

    def children(self, _: str) -> Future[tuple[ChildView, ...]]:
        """Return all children, oldest first."""
        return _mapped(self._request(JobRequest()), lambda answer: answer.children)

    def wait(self, request: WaitRequest) -> Future[WaitAnswer]:
        """Return the answer to a wait, or its state."""
        return _mapped(self._request(JobRequest(wait=request)), _waited)

    def predecessors(self, _: str) -> Future[tuple[ChildView, ...]]:
        """Return all jobs that the job comes after, in their order."""
        return _mapped(self._request(JobRequest(before=True)), lambda answer: answer.children)


def _waited(answer: JobAnswer) -> WaitAnswer:
    assert answer.wait is not None
    return answer.wait


def _mapped(first: Future[JobAnswer], take: Callable[[JobAnswer], A]) -> Future[A]:
    second: Future[A] = Future()
    second.set_running_or_notify_cancel()

    def pass_on(done: Future[JobAnswer]) -> None:
        if (error := done.exception()) is not None:
            second.set_exception(error)
        else:
            second.set_result(take(done.result()))

    first.add_done_callback(pass_on)
    return second


async def answer_children(context: Context, request: JobRequest) -> JobAnswer:
    """Serve a request about children, in the worker."""
    try:
        if request.wait is not None:
            return JobAnswer(request.number, wait=await context.relay_wait(request.wait))
        if request.specs:
            return JobAnswer(request.number, ids=await context.relay_submit(request.name, request.specs))
        if request.before:
            return JobAnswer(request.number, children=await context.relay_predecessors())
        return JobAnswer(request.number, children=await context.relay_children())
    except InterlockError as error:
        return JobAnswer(request.number, error=error.sentence, todo=error.todo)


def main() -> None:
    """Execute the order, report the end, and exit."""
    credentials.take()
    channel = Channel(int(sys.argv[1]))
    order = channel.first_order()
    child_jobs = RemoteChildren(channel.request)
    services = HandlerServices(upload=channel.upload, child_jobs=child_jobs)
    context = Context(order.grant, now=_now, wake=channel.wake, services=services)
    channel.serve(context)
    over = execute(order, context)
    channel.finish(context, over)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # leftover threads of the handler must not delay the exit


def execute(order: RunOrder, context: Context) -> HandlerEnd:
    """Run the handler under the order's limits."""
    try:
        if order.memory_limit_bytes is not None:
            resource.setrlimit(resource.RLIMIT_AS, (order.memory_limit_bytes, order.memory_limit_bytes))
        sys.path[:] = order.path
        with context.active(), _logging(order), continuing(order.trace):
            task, chain = find_task(order), find_middleware(order)
            context.surround(chain)
            value = _called(task, order, context, chain)
    except BaseException as error:  # noqa: BLE001 - any exception of a handler is its outcome
        outcome = outcome_of(error)
        if isinstance(outcome, Snoozed):
            return HandlerEnd(None, context.cost, snoozed=outcome)
        if isinstance(outcome, Interrupted | Yielded):
            wait = outcome.wait if isinstance(outcome, Yielded) else ""
            return HandlerEnd(None, context.cost, waits=isinstance(outcome, Yielded), wait=wait)
        return HandlerEnd(outcome, context.cost)
    return HandlerEnd(success_of(value, max_bytes=order.max_result_bytes), context.cost)


def _called(task: tasks.Task[..., Any], order: RunOrder, context: Context, chain: Chain) -> Any:
    """Call the handler with the middleware around it.

    It waits for an async handler.
    """
    invoke = partial(task.invoke, order.grant.input, context)
    if not chain.waits:
        return chain.call(context, partial(_finished, invoke))
    if inspect.iscoroutinefunction(task.function):
        return asyncio.run(chain.drive(context, invoke))
    with asyncio.Runner() as runner:
        wait = partial(_run_in, runner)
        return chain.call_waiting(context, invoke, wait)


def _finished(invoke: Callable[[], Any]) -> Any:
    value = invoke()
    return asyncio.run(_wait_for(value)) if inspect.isawaitable(value) else value


def _run_in(runner: asyncio.Runner, coroutine: Coroutine[Any, Any, Any], context: contextvars.Context) -> Any:
    return runner.run(coroutine, context=context)


def _logging(order: RunOrder) -> AbstractContextManager[None]:
    """Capture log records; prints go through a pipe to the worker."""
    return nullcontext() if order.job_log_level == OFF else records_captured(order.job_log_level)


def find_task(order: RunOrder) -> tasks.Task[..., Any]:
    """Return the task of the order, from its module."""
    try:
        found: Any = _module(order.module, order.main)
        for part in order.name.split("."):
            found = getattr(found, part)
    except (AttributeError, ImportError) as error:
        if order.grant.task in tasks.DEFAULT:
            return tasks.DEFAULT.get(order.grant.task)
        raise CannotLoad(
            f"The task {order.grant.task} cannot run in a process of its own: "
            f"{order.module}.{order.name} cannot be loaded there ({error}).",
            todo="Define the function at the top of a module.",
            facts={"task": order.grant.task, "module": order.module, "name": order.name},
        ) from error
    return found if isinstance(found, tasks.Task) else tasks.Task(found, name=order.grant.task)


def find_middleware(order: RunOrder) -> Chain:
    """Return the middleware that the order names."""
    found = []
    for address in order.middleware:
        module, _, path = address.partition(":")
        found.append(layer_of(find_in(_module(module, order.main), path, address)))
    return Chain(found)


@functools.cache
def _module(name: str, main: str | None) -> object:
    if main is None or name != MAIN:
        return importlib.import_module(name)
    names = runpy.run_path(main, run_name="__interlock_main__")
    return SimpleNamespace(**names)


async def _wait_for(value: Awaitable[Any]) -> Any:
    return await value


def _now() -> datetime:
    return datetime.now(UTC)


class Channel:
    """The socket to the worker."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.set_inheritable(False)
        self._lines = self._socket.makefile("rb")
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._finished = False
        self._logged = 0
        self._uploads: dict[int, Future[ArtifactView]] = {}
        self._requests: dict[int, Future[JobAnswer]] = {}

    def first_order(self) -> RunOrder:
        """Return the order to execute."""
        line = self._lines.readline()
        order = read_order(line) if line else None
        if not isinstance(order, RunOrder):
            sys.exit("The worker ended before it sent an order.")
        return order

    def wake(self) -> None:
        """Schedule sending messages of the handler."""
        self._woken.set()

    def upload(self, _: str, name: str, path: Path) -> Future[ArtifactView]:
        """Request the worker to store a file."""
        future: Future[ArtifactView] = Future()
        with self._lock:
            number = len(self._uploads)
            self._uploads[number] = future
            self._socket.sendall(line_of(FileRequest(number, name, str(path.absolute()))))
        return future

    def request(self, request: JobRequest) -> Future[JobAnswer]:
        """Send a request to the worker.

        It submits or lists children, lists the jobs before this one, or waits.
        """
        future: Future[JobAnswer] = Future()
        with self._lock:
            number = len(self._requests)
            self._requests[number] = future
            self._socket.sendall(line_of(msgspec.structs.replace(request, number=number)))
        return future

    def serve(self, context: Context) -> None:
        """Start the threads that receive and send."""
        threading.Thread(target=self._listen, args=(context,), daemon=True).start()
        threading.Thread(target=self._send_news, args=(context,), daemon=True).start()

    def finish(self, context: Context, over: HandlerEnd) -> None:
        """Send the remaining messages and the end."""
        with self._lock:
            self._finished = True
        self._send(context, over)

    def _listen(self, context: Context) -> None:
        for line in self._lines:
            order = read_order(line)
            if isinstance(order, StopOrder):
                context.stop(order.reason)
            elif isinstance(order, FileAnswer):
                self._uploaded(order)
            elif isinstance(order, JobAnswer):
                self._settle(order)
        if not self._finished:
            os.killpg(os.getpgrp(), signal.SIGKILL)

    def _uploaded(self, kept: FileAnswer) -> None:
        future = self._uploads[kept.number]
        if future.set_running_or_notify_cancel():
            if kept.artifact is not None:
                future.set_result(kept.artifact)
            else:
                future.set_exception(JobError(kept.error, todo=kept.todo))

    def _settle(self, answer: JobAnswer) -> None:
        future = self._requests[answer.number]
        if future.set_running_or_notify_cancel():
            if answer.error:
                future.set_exception(JobError(answer.error, todo=answer.todo))
            else:
                future.set_result(answer)

    def _send_news(self, context: Context) -> None:
        while not self._finished:
            self._woken.wait()
            self._woken.clear()
            self._send(context)

    def _send(self, context: Context, *over: HandlerEnd) -> None:
        """Take and send messages under one lock, to keep their order.

        The end has the last ones; the worker may close the socket as soon as it has read it.
        """
        with self._lock:
            if self._finished and not over:
                return
            messages: tuple[HandlerReport | HandlerEnd, ...] = (self._report_of(context.take()), *over)
            self._socket.sendall(b"".join(map(line_of, messages)))

    def _report_of(self, unsent: UnsentMessages) -> HandlerReport:
        missed = unsent.log_offset - self._logged if unsent.log else 0
        self._logged += missed + sum(map(size_of, unsent.log))
        return HandlerReport(
            progress=unsent.progress,
            checkpoint=msgspec.UNSET if unsent.checkpoint is None else unsent.checkpoint,
            log=tuple((line.level, line.text) for line in unsent.log),
            missed=missed,
            heartbeat=unsent.heartbeat,
            uploading=unsent.uploading,
        )


if __name__ == "__main__":
    main()
