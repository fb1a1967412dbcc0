"""Who works beside the main loop of a process, put together in one place.

executing    has the tasks, and begins, stops and ends them
reporter     sends what they have brought about, in the event loop
renewer      keeps their leases alive, in a thread of its own
supervisor   looks at all loops, in a thread of its own
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

import msgspec

from interlock.wire.runner import Answer, Message
from interlock.worker.executing import Executing
from interlock.worker.logs import Log
from interlock.worker.metrics import Metrics
from interlock.worker.port import OrchestratorPort
from interlock.worker.renewing import Renewer
from interlock.worker.reporting import Hear, Reporter
from interlock.worker.running import Parcels, RunningTask
from interlock.worker.settings import WorkerSettings
from interlock.worker.supervising import Beat, Supervisor, keep_running
from interlock.worker.tasks import Registry
from interlock.worker.tracing import Tracing
from interlock.worker.watching import Watch


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What a process shares with its crew."""

    runner_id: str
    settings: WorkerSettings
    registry: Registry
    connect: Callable[[], OrchestratorPort]
    log: Log
    watch: Watch
    metrics: Metrics | None
    tracing: Tracing | None
    now: Callable[[], datetime]
    monotonic: Callable[[], float]


class Crew:
    """The parts of a worker process, and their beginning and end."""

    def __init__(
        self,
        around: Surroundings,
        *,
        hear: Hear,
        task_ended: Callable[[RunningTask], None],
        room_made: Callable[[], None],
        reports_fail: Callable[[float], None],
        poll_awaited: Callable[[], bool],
        also: Sequence[Callable[[], object]],
    ) -> None:
        self._around = around
        self._loop: asyncio.AbstractEventLoop | None = None
        self._beside: list[asyncio.Task[None]] = []
        self.beat, report_beat, renew_beat = (
            Beat(name, around.monotonic) for name in ("poll", "report", "renew")
        )
        self.beat.awaited = poll_awaited
        parcels = Parcels()
        self.renewer = Renewer(
            around.settings,
            around.connect,
            parcels,
            self._renewed,
            log=around.log,
            beat=renew_beat,
            monotonic=around.monotonic,
        )
        renew_beat.awaited = self.renewer.awaits
        self.reporter = Reporter(
            hear,
            self._answered,
            failing=reports_fail,
            log=around.log,
            beat=report_beat,
            monotonic=around.monotonic,
        )
        self.executing = Executing(
            around.settings,
            around.registry,
            around.runner_id,
            reporter=self.reporter,
            renewer=self.renewer,
            parcels=parcels,
            watch=around.watch,
            log=around.log,
            now=around.now,
            ended=task_ended,
            freed=room_made,
            left_behind=self._left_behind,
            tracing=around.tracing,
            monotonic=around.monotonic,
        )
        self._supervisor = Supervisor(
            (self.beat, report_beat, renew_beat),
            log=around.log,
            metrics=around.metrics,
            stalled_after_s=around.settings.stalled_after_s,
            stuck_after_s=around.settings.stuck_after_s,
            blocked_by=self.executing.on_the_loop,
            also=(self.renewer.find_late, *also),
            monotonic=around.monotonic,
        )

    def start(self, **loops: Callable[[], Awaitable[None]]) -> None:
        """Begin; `loops` are run and supervised as well."""
        self._loop = asyncio.get_running_loop()
        self._beside = [
            asyncio.create_task(keep_running(name, body, self._around.log), name=f"loop {name}")
            for name, body in {"report": self.reporter.run, **loops}.items()
        ]
        self.renewer.start()
        self._supervisor.start()

    async def stop(self) -> None:
        """End every loop and thread, and whatever handlers have left."""
        for loop in self._beside:
            loop.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)
        await self.executing.close()
        self.renewer.stop()
        self._supervisor.stop()

    def _renewed(self, results: Sequence[tuple[RunningTask, Answer | None]]) -> None:
        """Called in the renewer's thread; what it says is heard in the event loop."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed; nobody is left to be told
                self._loop.call_soon_threadsafe(self.executing.renewed, results)

    def _answered(self, running: RunningTask, message: Message, answer: Answer | None) -> None:
        self.executing.answered(running, message, answer)

    def _left_behind(self) -> None:
        if self._around.metrics is not None:
            self._around.metrics.left_behind()
