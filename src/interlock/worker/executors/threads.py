"""Handlers that are plain functions, in one of a bounded number of threads.

A thread cannot be stopped from outside, only asked to stop. One whose lease is gone and which goes on
nevertheless is written off: it no longer counts, another may be started in its place, and it ends
when its handler returns. The threads are daemons, so that none of them keeps a process from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
from typing import TypeAlias

from interlock.worker.executors.executor import Ended
from interlock.worker.outcomes import Outcome, outcome_of, success_of
from interlock.worker.running_task import RunningTask

_Work: TypeAlias = tuple[RunningTask, Ended, contextvars.Context, asyncio.AbstractEventLoop]


class ThreadExecutor:
    """Runs functions in threads, which are started when they are needed and kept."""

    def __init__(self, *, max_result_bytes: int, name: str = "interlock-task") -> None:
        self._max_result_bytes = max_result_bytes
        self._name = name
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._idle = 0
        self._threads: set[threading.Thread] = set()
        self._written_off: set[threading.Thread] = set()
        self._lock = threading.Lock()

    def begin(self, running: RunningTask, ended: Ended) -> None:
        """Hand it to a thread that has nothing to do, or to a new one."""
        work = (running, ended, contextvars.copy_context(), asyncio.get_running_loop())
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                self._start_thread()
        self._work.put(work)

    def told(self, running: RunningTask) -> None:
        """The context has told it, and that is all there is."""

    def kill(self, running: RunningTask) -> bool:
        """A thread cannot be killed."""
        return running.handler_ended

    def leave(self, running: RunningTask) -> None:
        """Write off the thread that it is in."""
        with self._lock:
            if isinstance(running.handle, threading.Thread) and not running.handler_ended:
                self._written_off.add(running.handle)

    async def close(self) -> None:
        """Let the threads that have nothing to do end; the others are left to themselves."""
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
            outcome = context.run(self._run, running)
            del context
            with self._lock:
                gone = me in self._written_off
                self._idle += not gone
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to hear it
                loop.call_soon_threadsafe(ended, running, outcome)
            del work, running, ended, outcome
            if gone:
                break
        with self._lock:
            self._threads.discard(me)
            self._written_off.discard(me)

    def _run(self, running: RunningTask) -> Outcome:
        assert running.context is not None
        spanning = running.span or contextlib.nullcontext()
        try:
            with running.context.active(), spanning:
                value = running.invoke()
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its outcome
            return outcome_of(error)
        return success_of(value, max_bytes=self._max_result_bytes)
