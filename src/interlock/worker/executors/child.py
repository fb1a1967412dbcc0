"""The process of one task, from the inside.

    python -m interlock.worker.executors.child FD

It takes its order from the socket FD, executes one handler and ends. While the handler works, one
thread listens for the order to stop and another sends what the handler says. When the socket closes
the worker is gone: then nobody may go on, and the whole group ends itself.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import resource
import runpy
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from interlock.errors import CannotLoad, JobError
from interlock.processes import credentials
from interlock.wire.artifacts import ArtifactView
from interlock.wire.jobs import JobSpec
from interlock.wire.runner import size_of
from interlock.worker import tasks
from interlock.worker.captured_output import OFF, records_captured
from interlock.worker.context import Context
from interlock.worker.executors.orders import (
    Ask,
    Keep,
    Kept,
    Over,
    Run,
    Said,
    Stop,
    Told,
    line_of,
    read_order,
)
from interlock.worker.executors.relatives import FarFamily
from interlock.worker.outcomes import Interrupted, Yielded, outcome_of, success_of
from interlock.worker.outgoing import Unsent
from interlock.worker.tracing import continuing


def main() -> None:
    """Execute what is ordered, say how it ended, and end."""
    credentials.take()
    channel = Channel(int(sys.argv[1]))
    order = channel.first_order()
    family = FarFamily(channel.ask)
    context = Context(order.grant, now=_now, wake=channel.wake, upload=channel.upload, family=family)
    channel.serve(context)
    over = execute(order, context)
    channel.finish(context, over)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads that the handler has left behind keep nobody waiting


def execute(order: Run, context: Context) -> Over:
    """Run the handler under the order's limits."""
    try:
        if order.memory_limit_bytes is not None:
            resource.setrlimit(resource.RLIMIT_AS, (order.memory_limit_bytes, order.memory_limit_bytes))
        sys.path[:] = order.path
        with context.active(), _logging(order), continuing(order.trace):
            value = find_task(order).invoke(order.grant.input, context)
            if inspect.isawaitable(value):
                value = asyncio.run(_wait_for(value))
    except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its outcome
        outcome = outcome_of(error)
        if isinstance(outcome, Interrupted | Yielded):
            return Over(None, context.cost, waits=isinstance(outcome, Yielded))
        return Over(outcome, context.cost)
    return Over(success_of(value, max_bytes=order.max_result_bytes), context.cost)


def _logging(order: Run) -> AbstractContextManager[None]:
    """Capture what is logged; what is printed goes through a pipe to the worker."""
    return nullcontext() if order.job_log_level == OFF else records_captured(order.job_log_level)


def find_task(order: Run) -> tasks.Task[..., Any]:
    """The task that the order names, from the module that has defined it."""
    try:
        found: Any = _module(order)
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


def _module(order: Run) -> object:
    if order.main is None:
        return importlib.import_module(order.module)
    names = runpy.run_path(order.main, run_name="__interlock_main__")
    return type("Program", (), names)


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
        self._asked: dict[int, Future[Told]] = {}

    def first_order(self) -> Run:
        """What to execute."""
        line = self._lines.readline()
        order = read_order(line) if line else None
        if not isinstance(order, Run):
            sys.exit("The worker has gone before it gave an order.")
        return order

    def wake(self) -> None:
        """The handler has said something."""
        self._woken.set()

    def upload(self, _: str, name: str, path: Path) -> Future[ArtifactView]:
        """Have the worker keep a file."""
        future: Future[ArtifactView] = Future()
        with self._lock:
            number = len(self._uploads)
            self._uploads[number] = future
            self._socket.sendall(line_of(Keep(number, name, str(path.absolute()))))
        return future

    def ask(self, name: str, specs: Sequence[JobSpec]) -> Future[Told]:
        """Have the worker see to children."""
        future: Future[Told] = Future()
        with self._lock:
            number = len(self._asked)
            self._asked[number] = future
            self._socket.sendall(line_of(Ask(number, name, tuple(specs))))
        return future

    def serve(self, context: Context) -> None:
        """Listen and send, beside the handler."""
        threading.Thread(target=self._listen, args=(context,), daemon=True).start()
        threading.Thread(target=self._send_news, args=(context,), daemon=True).start()

    def finish(self, context: Context, over: Over) -> None:
        """Send what is left, and how it ended."""
        with self._lock:
            self._finished = True
        self._send(context, over)

    def _listen(self, context: Context) -> None:
        for line in self._lines:
            order = read_order(line)
            if isinstance(order, Stop):
                context.stop(order.reason)
            elif isinstance(order, Kept):
                self._uploaded(order)
            elif isinstance(order, Told):
                self._told(order)
        if not self._finished:
            os.killpg(os.getpgrp(), signal.SIGKILL)

    def _uploaded(self, kept: Kept) -> None:
        future = self._uploads[kept.number]
        if future.set_running_or_notify_cancel():
            if kept.artifact is not None:
                future.set_result(kept.artifact)
            else:
                future.set_exception(JobError(kept.error, todo=kept.todo))

    def _told(self, told: Told) -> None:
        future = self._asked[told.number]
        if future.set_running_or_notify_cancel():
            if told.error:
                future.set_exception(JobError(told.error, todo=told.todo))
            else:
                future.set_result(told)

    def _send_news(self, context: Context) -> None:
        while not self._finished:
            self._woken.wait()
            self._woken.clear()
            self._send(context)

    def _send(self, context: Context, *over: Over) -> None:
        """Taken and sent in one go, so that nobody overtakes what another has taken."""
        with self._lock:
            words: tuple[Said | Over, ...] = (self._said(context.take()), *over)
            self._socket.sendall(b"".join(map(line_of, words)))

    def _said(self, unsent: Unsent) -> Said:
        missed = unsent.log_offset - self._logged if unsent.log else 0
        self._logged += missed + sum(map(size_of, unsent.log))
        return Said(
            progress=unsent.progress,
            checkpoint=msgspec.UNSET if unsent.checkpoint is None else unsent.checkpoint,
            log=tuple((line.level, line.text) for line in unsent.log),
            missed=missed,
            heartbeat=unsent.heartbeat,
            uploading=unsent.uploading,
        )


if __name__ == "__main__":
    main()
