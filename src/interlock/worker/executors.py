"""The ways to run a handler, and one lane for each.

    AsyncExecutor    in the event loop. A function without a single `await` never waits, so it is run
                     without an asyncio task, which would be most of its cost.
    ThreadExecutor   in one of a bounded number of daemon threads. A thread cannot be stopped, only asked
                     to; one that continues without a lease is written off, and another replaces it.
    ProcessExecutor  in a separate process, with its own group, session and memory limit; it can be
                     killed. It ends itself when the socket of the worker closes (`process_executor`).

Each starts a handler and reports its end once, in the event loop.

A lane holds the running and waiting tasks of an executor. A worker claims jobs when it has room. With
handlers of microseconds it would then wait for the store more than it works, so it claims *ahead*: as many
again as it may run at once, or more if they begin within `AHEAD_WORK_S`. It does so only while handlers take
less than `SOON_S`, because jobs that wait here could start elsewhere, and releases jobs that have waited for
`AHEAD_FOR_S`, which costs no retry.

`Stopper` stops a handler: it asks first, then forces it. A coroutine is cancelled, a process is killed with
its group, a thread cannot be stopped. A handler that ignores this is logged and counted, and its slot is used
for others.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dis
import queue
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import lru_cache
from inspect import CO_COROUTINE
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from interlock.worker.machines import TaskPart
from interlock.worker.outcomes import Interrupted, Outcome, outcome_of, success_of
from interlock.worker.process_executor import ProcessExecutor
from interlock.worker.running_task import Ended, RunningTask
from interlock.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from interlock.worker.host import AwakeTime
    from interlock.worker.telemetry import Log


class HandlerExecutor(Protocol):
    """One way to run handlers."""

    def begin(self, running: RunningTask, ended: Ended) -> None:
        """Start the handler; `ended` may be called before this returns."""
        ...

    def forward_stop(self, running: RunningTask) -> None:
        """Forward a stop request; the context of the handler has it already."""
        ...

    def kill(self, running: RunningTask) -> bool:
        """Stop the handler forcibly; return False if that is impossible."""
        ...

    def leave(self, running: RunningTask) -> None:
        """Abandon the handler, which may continue."""
        ...

    async def close(self) -> None:
        """Stop all handlers that can be stopped."""
        ...


_WAITS = frozenset({"GET_AWAITABLE", "GET_AITER", "GET_ANEXT", "BEFORE_ASYNC_WITH"})
_EAGER: dict[str, Any] = {"eager_start": True} if sys.version_info >= (3, 12) else {}


class AsyncExecutor:
    """Runs coroutines; `kill` cancels them."""

    def __init__(self, *, max_result_bytes: int) -> None:
        self._max_result_bytes = max_result_bytes
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self.current: TaskPart | None = None
        """The handler that runs without a task, to report what blocks the loop."""

    def begin(self, running: RunningTask, ended: Ended) -> None:
        """Start the handler; one that never waits has ended when this returns."""
        assert running.context is not None
        self.current = running
        try:
            with running.context.active():
                awaitable = running.awaitable()
                if running.span is None and never_waits(awaitable):
                    awaitable.send(None)
        except StopIteration as returned:
            outcome: Outcome = success_of(returned.value, max_bytes=self._max_result_bytes)
        except BaseException as error:  # noqa: BLE001 - any exception of a handler is its outcome
            outcome = outcome_of(error)
        else:
            self._begin_task(running, awaitable, ended)
            return
        finally:
            self.current = None
        ended(running, outcome)

    def forward_stop(self, running: RunningTask) -> None:
        """Do nothing: the context has the request.

        `kill` cancels the coroutine later.
        """

    def kill(self, running: RunningTask) -> bool:
        """Cancel the task."""
        task = running.handle
        return task is None or task.done() or task.cancel()

    def leave(self, running: RunningTask) -> None:
        """Do nothing: it was cancelled; if it continues, that is logged."""

    async def close(self) -> None:
        """Cancel remaining tasks, and wait a moment."""
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
    """Close a coroutine that was cancelled before its first step."""
    if isinstance(awaitable, Coroutine):
        awaitable.close()


def never_waits(coroutine: object) -> bool:
    """Return whether a coroutine has no await and cannot be suspended."""
    code = getattr(coroutine, "cr_code", None)
    return code is not None and has_no_await(code)


def function_never_waits(function: object) -> bool:
    """Return whether a function is a coroutine function without any await."""
    if type(function) is not FunctionType:
        return False
    return bool(function.__code__.co_flags & CO_COROUTINE) and has_no_await(function.__code__)


@lru_cache(maxsize=4_096)
def has_no_await(code: CodeType) -> bool:
    """Return whether this code has no await."""
    return not any(instruction.opname in _WAITS for instruction in dis.get_instructions(code))


_LoopWork: TypeAlias = tuple[RunningTask, Ended, contextvars.Context, asyncio.AbstractEventLoop]


class ThreadExecutor:
    """Runs functions in threads, which are started on demand and kept."""

    def __init__(self, *, max_result_bytes: int, name: str = "interlock-task") -> None:
        self._max_result_bytes = max_result_bytes
        self._name = name
        self._work: queue.SimpleQueue[_LoopWork | None] = queue.SimpleQueue()
        self._idle = 0
        self._threads: set[threading.Thread] = set()
        self._written_off: set[threading.Thread] = set()
        self._lock = threading.Lock()

    def begin(self, running: RunningTask, ended: Ended) -> None:
        """Hand the task to an idle thread, or to a new one."""
        work = (running, ended, contextvars.copy_context(), asyncio.get_running_loop())
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                self._start_thread()
        self._work.put(work)

    def forward_stop(self, running: RunningTask) -> None:
        """Do nothing: the context has the request."""

    def kill(self, running: RunningTask) -> bool:
        """Return whether it has ended: a thread cannot be killed."""
        return running.handler_ended

    def leave(self, running: RunningTask) -> None:
        """Write off its thread."""
        with self._lock:
            if isinstance(running.handle, threading.Thread) and not running.handler_ended:
                self._written_off.add(running.handle)

    async def close(self) -> None:
        """Stop idle threads; busy ones are abandoned."""
        with self._lock:
            idle = [thread for thread in self._threads if thread not in self._written_off]
        for _ in idle:
            self._work.put(None)

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
        self._threads.add(thread)
        thread.start()

    def _serve(self) -> None:
        me = threading.current_thread()
        while (work := self._work.get()) is not None:
            running, ended, context, loop = work
            running.handle = me
            outcome = context.run(self._run, running, loop)
            del context
            with self._lock:
                gone = me in self._written_off
                self._idle += not gone
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(ended, running, outcome)
            del work, running, ended, outcome
            if gone:
                break
        with self._lock:
            self._threads.discard(me)
            self._written_off.discard(me)

    def _run(self, running: RunningTask, loop: asyncio.AbstractEventLoop) -> Outcome:
        assert running.context is not None
        spanning = running.span or contextlib.nullcontext()
        try:
            with running.context.active(), spanning:
                value = running.call(loop)
        except BaseException as error:  # noqa: BLE001 - any exception of a handler is its outcome
            return outcome_of(error)
        return success_of(value, max_bytes=self._max_result_bytes)


SOON_S = 0.05
"""Maximum duration of handlers for which jobs are claimed ahead."""
AHEAD_FOR_S = 1.0
"""Maximum time that a job claimed ahead waits here."""
AHEAD_WORK_S = 0.01
"""Maximum duration of the work of one claim ahead, if each of its handlers takes as long as the longest."""
_INSTANT_S = 1e-6
_FORGETTING = 0.9
"""Decay of the longest duration with each shorter handler: it rises at once, and falls slowly."""


class ExecutorLane:
    """One executor with a limit. Usage is derived, never stored separately."""

    __slots__ = ("executor", "limit", "longest_s", "name", "running", "waiting")

    def __init__(self, name: str, executor: HandlerExecutor, limit: int) -> None:
        self.name: str = name
        self.executor: HandlerExecutor = executor
        self.limit: int = limit
        self.running: dict[RunningTask, float] = {}
        """Running tasks with their start times, in order."""
        self.waiting: deque[Any] = deque()
        """Tasks and cohorts, in the order in which they start."""
        self.longest_s: float = 2 * SOON_S
        """Recent maximum duration of a handler; initially above `SOON_S`."""

    @property
    def has_room(self) -> bool:
        """Whether a waiting task could start."""
        return bool(self.waiting) and len(self.running) < self.limit

    def left(self, running: RunningTask, now: float) -> None:
        """Remove a task that has ended or was abandoned."""
        began = self.running.pop(running, None)
        if began is not None:
            self.learn(now - began, 1)

    def learn(self, longest_s: float, handlers: int) -> None:
        """Record the maximum duration of some handlers."""
        self.longest_s = max(longest_s, self.longest_s * _FORGETTING**handlers)

    def is_quick(self, now: float) -> bool:
        """Return whether waiting tasks will start soon."""
        if self.longest_s > SOON_S:
            return False
        oldest = next(iter(self.running.values()), now)
        return now - oldest <= SOON_S

    def on_the_loop(self) -> str:
        """Return the running tasks, for the report about a blocked event loop."""
        now = self.executor.current if isinstance(self.executor, AsyncExecutor) else None
        suspects: list[TaskPart] = [now] if now is not None else list(self.running)
        return ", ".join(f"{one.grant.task} ({one.grant.job_id})" for one in suspects[:10]) or "unknown"


class Lanes(dict[str, ExecutorLane]):
    """The lanes of a worker, by the name of the executor."""

    def __init__(self, settings: WorkerSettings, monotonic: Callable[[], float]) -> None:
        size, concurrency = settings.max_result_bytes, settings.concurrency
        threads, processes = settings.threads or concurrency, settings.processes or concurrency
        super().__init__(
            {
                "async": ExecutorLane("async", AsyncExecutor(max_result_bytes=size), concurrency),
                "thread": ExecutorLane("thread", ThreadExecutor(max_result_bytes=size), threads),
                "process": ExecutorLane("process", ProcessExecutor(settings), processes),
            }
        )
        self._concurrency, self._most_ahead = concurrency, settings.most_ahead
        self._monotonic = monotonic

    def free(self) -> int:
        """Return how many more handlers may run; negative if too many wait."""
        lanes = self.values()
        waiting: int = sum([one.count for lane in lanes for one in lane.waiting])
        return self._concurrency - waiting - sum([len(lane.running) for lane in lanes])

    def room(self, coming: int) -> int:
        """Return how many more can start at once; 0 while others wait.

        Those on their way are not counted.
        """
        return 0 if any(lane.waiting for lane in self.values()) else self.free() - coming

    def room_ahead(self, coming: int, batch: int) -> int:
        """Return how many jobs to claim.

        These can start at once, or they are a whole batch that may wait a moment. All or nothing: for a store
        a large claim costs little more than a small one.
        """
        free = self.free() - coming
        if 0 < self._concurrency - free <= batch:
            return batch
        return 0 if any(lane.waiting for lane in self.values()) else free

    def batch_ahead(self) -> int:
        """Return how many jobs to claim ahead of the running ones.

        That is as many as may run at once, if all handlers are quick, and more if all of these will begin
        within `AHEAD_WORK_S`; otherwise 0.
        """
        now = self._monotonic()
        used = [lane for lane in self.values() if lane.running or lane.waiting]
        if not all(lane.is_quick(now) for lane in used):
            return 0
        longest_s = max([lane.longest_s for lane in used], default=SOON_S)
        soon = AHEAD_WORK_S / max(longest_s, _INSTANT_S)
        return max(self._concurrency, min(int(soon), self._most_ahead))

    def outside_the_loop(self) -> int:
        """Return the number of handlers in threads or processes."""
        return sum(len(lane.running) for lane in self.values() if lane.name != "async")


class Stopper:
    """Stops handlers."""

    def __init__(
        self,
        settings: WorkerSettings,
        log: Log,
        *,
        awake: AwakeTime,
        left_behind: Callable[[], None],
        freed: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._log = log
        self._awake = awake
        self._left_behind = left_behind
        self._freed = freed

    def stop_gracefully(self, running: RunningTask) -> None:
        """Give a handler time to stop, then kill it."""
        running.lane.executor.forward_stop(running)
        self._awake.call_later(self._settings.stop_grace_s, self._kill, running)

    def stop(self, running: RunningTask) -> None:
        """Kill a handler now: its results are not accepted any more."""
        running.lane.executor.forward_stop(running)
        self._kill(running)

    def _kill(self, running: RunningTask) -> None:
        if running.handler_ended:
            return
        if running.lane.executor.kill(running):
            delay_s = self._settings.stop_grace_s + self._settings.kill_grace_s
            self._awake.call_later(delay_s, self._leave, running)
        elif running.ended:
            self._leave(running)
        else:
            self._warn("handler_cannot_be_stopped", running)

    def _leave(self, running: RunningTask) -> None:
        """Abandon a handler that ignores the stop.

        Its slot is freed once its task has ended.
        """
        if running.handler_ended or running not in running.lane.running:
            return
        running.lane.executor.leave(running)
        if running.ended:
            running.lane.running.pop(running, None)
            self._freed()
        self._warn("handler_left_behind", running)
        self._left_behind()

    def _warn(self, message: str, running: RunningTask) -> None:
        executor = "" if running.lane is None else running.lane.name
        grant = running.grant
        self._log.warning(message, task_id=grant.job_id, task_type=grant.task, executor=executor)
