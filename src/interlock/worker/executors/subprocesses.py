"""Handlers in processes of their own: they can crash, leak, hold the GIL, and be killed.

Each attempt gets a new process that leads its own group and session, with a cap on its memory if one
is set. Orders and what the handler says go through a socket; what it prints becomes its log. When the
worker is gone, however that came about, the socket closes and the process ends itself.
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
from interlock.worker.executors.executor import Ended
from interlock.worker.executors.orders import (
    MAX_LINE_BYTES,
    Ask,
    Keep,
    Kept,
    Over,
    Run,
    Said,
    Stop,
    line_of,
    read_word,
)
from interlock.worker.executors.relatives import answer
from interlock.worker.outcomes import Interrupted, Outcome, Yielded, failure_of
from interlock.worker.running_task import RunningTask
from interlock.worker.settings import WorkerSettings
from interlock.worker.tracing import AttemptSpan

SIGNALLED = 128
CHILD = "interlock.worker.executors.child"


class Attendance:
    """One process and who attends to it."""

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.group: Group | None = None
        self.writer: asyncio.StreamWriter | None = None
        self.span: AttemptSpan | None = None
        self.killed = False


class ProcessExecutor:
    """Runs each handler in a process of its own."""

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

    def told(self, running: RunningTask) -> None:
        """Pass it on; the handler's context is in the other process."""
        writer = running.handle.writer
        if writer is not None and not writer.is_closing():
            writer.write(line_of(Stop(running.stop_reason)))

    def kill(self, running: RunningTask) -> bool:
        """End its process group: by request, and soon after by force."""
        attendance: Attendance = running.handle
        attendance.killed = True
        if attendance.group is not None:
            attendance.group.terminate(self._settings.kill_grace_s)
        return True

    def leave(self, running: RunningTask) -> None:
        """It was killed, and is attended to until it is gone."""

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
        except Exception as error:  # noqa: BLE001 - whatever went wrong is the outcome
            outcome = failure_of(error)
        ended(running, outcome)

    async def _execute(self, running: RunningTask, attendance: Attendance) -> Outcome:
        assert running.context is not None
        ours, theirs = socket.socketpair()
        with ours, theirs:
            # The URL of a store may have a password, and a shell step of another job could read a variable.
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
            said: Over | None = None
            try:
                said = await self._converse(running, attendance, ours)
            finally:
                if said is None:
                    group.kill()  # it is gone, or nobody understands it
                end = await group.ended()
                self._groups.discard(group)
        return _judge(said, end, running)

    async def _converse(
        self, running: RunningTask, attendance: Attendance, ours: socket.socket
    ) -> Over | None:
        """Give the orders and hear what is said, until the process says how it ended or is gone."""
        reader, writer = await asyncio.open_connection(sock=ours, limit=MAX_LINE_BYTES)
        attendance.writer = writer
        over: Over | None = None
        uploads: set[asyncio.Task[None]] = set()
        try:
            writer.write(line_of(self._order(running, attendance.span)))
            if running.stop_reason:
                self.told(running)
            with contextlib.suppress(ConnectionError):
                while over is None and (line := await reader.readline()):
                    over = _take(running, line, writer, uploads)
        finally:
            for upload in uploads:
                upload.cancel()  # nobody waits for them any more
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        return over

    def _order(self, running: RunningTask, span: AttemptSpan | None) -> Run:
        assert running.task is not None
        module, name = running.task.function.__module__, running.task.function.__qualname__
        main = getattr(sys.modules.get("__main__"), "__file__", None) if module == "__main__" else None
        return Run(
            module=module,
            name=name,
            grant=msgspec.structs.replace(running.grant, token=""),
            path=list(sys.path),
            main=main,
            memory_limit_bytes=running.task.memory_limit_bytes or self._settings.memory_limit_bytes,
            max_result_bytes=self._settings.max_result_bytes,
            trace={} if span is None else span.carried(),
            job_log_level=self._settings.job_log_level,
        )


def _take(
    running: RunningTask, line: bytes, writer: asyncio.StreamWriter, uploads: set[asyncio.Task[None]]
) -> Over | None:
    word = read_word(line)
    if isinstance(word, Keep | Ask):
        upload = asyncio.create_task(_serve(running, word, writer))
        uploads.add(upload)
        upload.add_done_callback(uploads.discard)
        return None
    if isinstance(word, Over):
        if word.cost is not None and running.context is not None:
            running.context.spend(word.cost)
        return word
    _pass_on(running, word)
    return None


async def _serve(running: RunningTask, asked: Keep | Ask, writer: asyncio.StreamWriter) -> None:
    """Do something for the handler over there, and say what became of it."""
    assert running.context is not None
    done = await (
        _kept(running.context, asked) if isinstance(asked, Keep) else answer(running.context, asked)
    )
    if not writer.is_closing():
        writer.write(line_of(done))


async def _kept(context: Context, asked: Keep) -> Kept:
    try:
        return Kept(asked.number, await context.artifact(asked.name, asked.path))
    except InterlockError as error:
        return Kept(asked.number, None, error.sentence, error.todo)
    except OSError as error:
        return Kept(asked.number, None, f"The file cannot be kept: {error}.")


def _pass_on(running: RunningTask, said: Said) -> None:
    """What the handler has said over there is said here."""
    context = running.context
    assert context is not None
    if said.missed:
        context.log(f"{said.missed:,} bytes are missing here", "gap")
    for level, text in said.log:
        context.log(text, level)
    if said.progress is not None:
        context.progress(said.progress.done, said.progress.total, said.progress.message)
    if isinstance(said.checkpoint, msgspec.Raw):
        context.checkpoint(said.checkpoint)
    if said.heartbeat:
        context.heartbeat()
    if said.uploading:
        context.uploading()


def _judge(said: Over | None, end: End, running: RunningTask) -> Outcome:
    if running.stop_reason == "cancel":
        return Interrupted(end.confirmed_dead)
    if said is not None and said.outcome is not None:
        return said.outcome
    if said is not None and said.waits:
        return Yielded()
    if said is not None or running.stop_reason:
        return Interrupted(end.confirmed_dead)
    return Failed(
        error=f"The process of the task {how_it_ended(end.code)} before it had a result.",
        exit_code=end.code,
    )


def how_it_ended(code: int) -> str:
    """An exit code in words. Above 128 it is how a shell says that a signal has ended its command."""
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
