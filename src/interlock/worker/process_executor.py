"""The executor that runs each handler in a separate process.

The worker sends the order over a socket and processes the messages of the handler, until it reports its end
or its process is gone (`task_process` is the other end). What became of the handler is judged from both.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys

import msgspec

from interlock.errors import InterlockError
from interlock.processes import credentials
from interlock.processes.groups import End, Group
from interlock.wire.runner import Failed
from interlock.worker.context import Context
from interlock.worker.outcomes import Interrupted, Outcome, Yielded, failure_of
from interlock.worker.running_task import Ended, RunningTask
from interlock.worker.settings import WorkerSettings
from interlock.worker.task_process import (
    MAIN,
    MAX_LINE_BYTES,
    FileAnswer,
    FileRequest,
    HandlerEnd,
    HandlerReport,
    HandlerRequest,
    JobRequest,
    RunOrder,
    StopOrder,
    answer_children,
    line_of,
    read_message,
)
from interlock.worker.tracing import AttemptSpan

SIGNALLED = 128
CHILD = "interlock.worker.task_process"


class Attendance:
    """One process and the task that attends to it."""

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.group: Group | None = None
        self.writer: asyncio.StreamWriter | None = None
        self.span: AttemptSpan | None = None
        self.killed = False


class ProcessExecutor:
    """Runs each handler in a separate process."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._attending: set[asyncio.Task[None]] = set()
        self._groups: set[Group] = set()

    def begin(self, running: RunningTask, ended: Ended) -> None:
        """Start its process."""
        running.handle = attendance = Attendance()
        attendance.task = asyncio.create_task(self._attend(running, attendance, ended))
        self._attending.add(attendance.task)
        attendance.task.add_done_callback(self._attending.discard)

    def forward_stop(self, running: RunningTask) -> None:
        """Forward the request: the handler's context is in the other process."""
        writer = running.handle.writer
        if writer is not None and not writer.is_closing():
            writer.write(line_of(StopOrder(running.stop_reason)))

    def kill(self, running: RunningTask) -> bool:
        """Terminate its process group, and kill it soon after."""
        attendance: Attendance = running.handle
        attendance.killed = True
        if attendance.group is not None:
            attendance.group.terminate(self._settings.kill_grace_s)
        return True

    def leave(self, running: RunningTask) -> None:
        """Do nothing: it was killed, and is attended to until it has ended."""

    async def close(self) -> None:
        """Kill every process that is left."""
        for group in self._groups:
            group.kill()
        if self._attending:
            await asyncio.wait(self._attending, timeout=1.0)

    async def _attend(self, running: RunningTask, attendance: Attendance, ended: Ended) -> None:
        try:
            with running.span or contextlib.nullcontext() as attendance.span:
                outcome = await self._execute(running, attendance)
                if attendance.span is not None and isinstance(outcome, Failed):
                    attendance.span.failed(outcome.error)
        except Exception as error:  # noqa: BLE001 - any exception is the outcome
            outcome = failure_of(error)
        ended(running, outcome)

    async def _execute(self, running: RunningTask, attendance: Attendance) -> Outcome:
        assert running.context is not None
        ours, theirs = socket.socketpair()
        with ours, theirs:
            # The URL of a store may contain a password, and a shell step of another job could read a
            # variable.
            with credentials.handed_over(own=False) as (environment, pipe):
                group = await Group.start(
                    [sys.executable, "-m", CHILD, str(theirs.fileno())],
                    running.context.log,
                    env=environment,
                    pass_fds=(theirs.fileno(), pipe),
                    mask=running.context.mask,
                )
            theirs.close()
            self._groups.add(group)
            attendance.group = group
            if attendance.killed:
                group.terminate(self._settings.kill_grace_s)
            ending: HandlerEnd | None = None
            try:
                ending = await self._converse(running, attendance, ours)
            finally:
                if ending is None:
                    group.kill()  # it has ended, or sent an invalid message
                end = await group.ended()
                self._groups.discard(group)
        return _judge(ending, end, running)

    async def _converse(
        self, running: RunningTask, attendance: Attendance, ours: socket.socket
    ) -> HandlerEnd | None:
        """Send the order and process messages until the process has ended."""
        reader, writer = await asyncio.open_connection(sock=ours, limit=MAX_LINE_BYTES)
        attendance.writer = writer
        over: HandlerEnd | None = None
        uploads: set[asyncio.Task[None]] = set()
        try:
            writer.write(line_of(self._order(running, attendance.span)))
            if running.stop_reason:
                self.forward_stop(running)
            with contextlib.suppress(ConnectionError):
                while over is None and (line := await reader.readline()):
                    over = _take(running, line, writer, uploads)
        finally:
            for upload in uploads:
                upload.cancel()  # the task has ended
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        return over

    def _order(self, running: RunningTask, span: AttemptSpan | None) -> RunOrder:
        assert running.task is not None
        module, name = running.task.function.__module__, running.task.function.__qualname__
        return RunOrder(
            module=module,
            name=name,
            grant=msgspec.structs.replace(running.grant, token=""),
            path=list(sys.path),
            main=getattr(sys.modules.get(MAIN), "__file__", None),
            memory_limit_bytes=running.task.memory_limit_bytes or self._settings.memory_limit_bytes,
            max_result_bytes=self._settings.max_result_bytes,
            trace={} if span is None else span.carried(),
            job_log_level=self._settings.job_log_level,
            middleware=running.chain.addresses(),
        )


def _take(
    running: RunningTask, line: bytes, writer: asyncio.StreamWriter, uploads: set[asyncio.Task[None]]
) -> HandlerEnd | None:
    message = read_message(line)
    if isinstance(message, FileRequest | JobRequest):
        upload = asyncio.create_task(_serve(running, message, writer))
        uploads.add(upload)
        upload.add_done_callback(uploads.discard)
        return None
    if isinstance(message, HandlerEnd):
        if message.cost is not None and running.context is not None:
            running.context.spend(message.cost)
        return message
    _pass_on(running, message)
    return None


async def _serve(running: RunningTask, request: HandlerRequest, writer: asyncio.StreamWriter) -> None:
    """Serve a request of the handler, and send the answer."""
    context = running.context
    assert context is not None
    done = await (
        _stored(context, request) if isinstance(request, FileRequest) else answer_children(context, request)
    )
    if not writer.is_closing():
        writer.write(line_of(done))


async def _stored(context: Context, request: FileRequest) -> FileAnswer:
    try:
        return FileAnswer(request.number, await context.artifact(request.name, request.path))
    except InterlockError as error:
        return FileAnswer(request.number, None, error.sentence, error.todo)
    except OSError as error:
        return FileAnswer(request.number, None, f"The file cannot be stored: {error}.")


def _pass_on(running: RunningTask, message: HandlerReport) -> None:
    """Forward messages of the handler to its context here."""
    context = running.context
    assert context is not None
    if message.missed:
        context.log(f"{message.missed:,} bytes are missing here", "gap")
    for level, text in message.log:
        context.log(text, level)
    if message.progress is not None:
        context.progress(message.progress.done, message.progress.total, message.progress.message)
    if isinstance(message.checkpoint, msgspec.Raw):
        context.checkpoint(message.checkpoint)
    if message.heartbeat:
        context.heartbeat()
    if message.uploading:
        context.uploading()


def _judge(ending: HandlerEnd | None, end: End, running: RunningTask) -> Outcome:
    if running.stop_reason == "cancel":
        return Interrupted(end.confirmed_dead)
    if ending is not None and ending.outcome is not None:
        return ending.outcome
    if ending is not None and (ending.waits or ending.snoozed is not None):
        return ending.snoozed or Yielded(ending.wait)
    if ending is not None or running.stop_reason:
        return Interrupted(end.confirmed_dead)
    return Failed(
        error=f"The process of the task {how_it_ended(end.code)} before it had a result.",
        exit_code=end.code,
    )


def how_it_ended(code: int) -> str:
    """Return an exit code in words; above 128 it stands for a signal."""
    if code < 0:
        return f"was killed by {_signal(-code)}"
    if code > SIGNALLED and (name := _signal(code - SIGNALLED)).startswith("SIG"):
        return f"ended with exit code {code} ({name})"
    return f"ended with exit code {code}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
