"""One lane per executor: what runs in it, and what waits for it."""

from __future__ import annotations

from collections import deque

from interlock.worker.executors.asynchronous import AsyncExecutor
from interlock.worker.executors.executor import Executor
from interlock.worker.executors.subprocesses import ProcessExecutor
from interlock.worker.executors.threads import ThreadExecutor
from interlock.worker.running import RunningTask
from interlock.worker.settings import WorkerSettings


class Lane:
    """One executor with a limit. What it has is counted, never noted beside it."""

    __slots__ = ("executor", "limit", "name", "running", "waiting")

    def __init__(self, name: str, executor: Executor, limit: int) -> None:
        self.name = name
        self.executor = executor
        self.limit = limit
        self.running: set[RunningTask] = set()
        self.waiting: deque[RunningTask] = deque()

    @property
    def has_room(self) -> bool:
        """Whether something that waits could begin."""
        return bool(self.waiting) and len(self.running) < self.limit

    def on_the_loop(self) -> str:
        """What runs in it, for whoever finds the event loop blocked."""
        now = self.executor.current if isinstance(self.executor, AsyncExecutor) else None
        suspects = [now] if now is not None else list(self.running)
        return ", ".join(f"{one.grant.task} ({one.grant.job_id})" for one in suspects[:10]) or "unknown"


def lanes_of(settings: WorkerSettings) -> dict[str, Lane]:
    """By the name of the executor, as tasks say it."""
    size = settings.max_result_bytes
    lanes = (
        Lane("async", AsyncExecutor(max_result_bytes=size), settings.concurrency),
        Lane("thread", ThreadExecutor(max_result_bytes=size), settings.threads or settings.concurrency),
        Lane("process", ProcessExecutor(settings), settings.processes or settings.concurrency),
    )
    return {lane.name: lane for lane in lanes}
