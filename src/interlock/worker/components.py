"""The components of a worker process beside its main loop.

    task runner        has the tasks, and starts, stops and ends them
    reporter           sends their reports, in the event loop
    renewer            renews their leases, in a separate thread
    watchdog           watches all loops, in a separate thread
    supervisor client  talks to the supervisor of all workers, in a separate thread
    order handler      carries out the supervisor's orders, in the event loop

Orders of the supervisor:

    paused             no job is claimed; running tasks are finished, or released if wanted
    drained            the same, and the process exits when no task is left
    terminated         running tasks are stopped, and the process exits at once

The order to exit at once must work even while the event loop is blocked, so it is received in the
supervisor client's thread (`machines.Terminated`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import msgspec

from interlock.wire.runner import SendMessages
from interlock.wire.workers import WorkerBeat, WorkerOrders, WorkerSpec
from interlock.worker.child_jobs import ChildJobs
from interlock.worker.context import HandlerServices
from interlock.worker.environment import WorkerEnv
from interlock.worker.host import LoopTick, Shutdown, call_in_loop, keep_running
from interlock.worker.leases import RenewalResult, Renewer, ReportQueue
from interlock.worker.machines import Terminated
from interlock.worker.pool import about_pool
from interlock.worker.port import OrchestratorPort
from interlock.worker.running_task import PayloadHandoff
from interlock.worker.simulation_channel import Simulators
from interlock.worker.supervisor_client import SupervisorClient, identity, versions
from interlock.worker.task_runner import TaskRunner
from interlock.worker.telemetry import Log
from interlock.worker.transfers import CacheTransfers, Uploads
from interlock.worker.watchdog import Watchdog


class OrderHandler:
    """Carries out the newest orders."""

    def __init__(
        self,
        task_runner: TaskRunner,
        shutdown: Shutdown,
        *,
        log: Log,
        hold: Callable[[bool], None],
    ) -> None:
        self._task_runner = task_runner
        self._shutdown = shutdown
        self._log = log
        self._hold = hold
        self.orders: WorkerOrders = WorkerOrders(state="")

    @property
    def completed(self) -> int:
        """The number of the newest orders that are carried out.

        It is 0 while a drain is in progress.
        """
        orders = self.orders
        busy = (orders.give_back or orders.stop) and self._task_runner.active
        return 0 if busy else orders.number

    def apply(self, orders: WorkerOrders) -> None:
        """Carry out new orders."""
        before, self.orders = self.orders, orders
        if before.state and before.number == orders.number and before.stop == orders.stop:
            return
        if before.state:
            self._log.info(
                "orders", state=orders.state, take=orders.take, stop=orders.stop, reason=orders.reason
            )
        if orders.take is not before.take:
            self._hold(not orders.take)
        if orders.stop == "terminate":
            self._task_runner.revoked()
        elif orders.give_back:
            self._task_runner.interrupt()
        self.shut_down_if_drained()

    def shut_down_if_drained(self) -> None:
        """Shut down a draining worker when no task is left."""
        if self.orders.stop == "drain" and not self._task_runner.active:
            self._shutdown.request()


_EXHAUSTED = frozenset({errno.ENOMEM, errno.ENOSPC, errno.EMFILE, errno.ENFILE})


class ProcessHooks(msgspec.Struct, frozen=True, kw_only=True):
    """Callbacks of the components to the main loop."""

    room_made: Callable[[], None]
    """Called when a task has ended, or can be started."""
    reports_fail: Callable[[float], None]
    """Called when reports could not be delivered for this many seconds."""
    poll_awaited: Callable[[], bool]
    """Returns whether the main loop has work to do."""
    counts: Callable[[], tuple[int, int]]
    """Returns the number of succeeded and failed tasks."""
    hold: Callable[[bool], None]
    """Called when claiming is held or allowed again."""


class Components:
    """The components of a worker process, with their start and stop."""

    def __init__(
        self,
        env: WorkerEnv,
        *,
        send: SendMessages,
        port: Callable[[], OrchestratorPort],
        shutdown: Shutdown,
        hooks: ProcessHooks,
    ) -> None:
        self._env = env
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_tasks: list[asyncio.Task[None]] = []
        self._counted_once = False
        self.beat: LoopTick = LoopTick("poll", env.monotonic, hooks.poll_awaited)
        self._room_made = hooks.room_made
        payloads = PayloadHandoff()
        self._uploads = Uploads(port, env.runner_id)
        self._simulators = Simulators(
            env.connect, env.runner_id, threads=env.threads, monotonic=env.monotonic
        )
        self._child_jobs = ChildJobs(port, env.runner_id)
        self.renewer: Renewer = Renewer(
            env.settings,
            env.connect,
            payloads,
            self._renewed,
            log=env.log,
            monotonic=env.monotonic,
            threads=env.threads,
        )
        self.reporter: ReportQueue = ReportQueue(
            send,
            lambda *reported: self.task_runner.answered(*reported),  # noqa: PLW0108 - it is made after this
            failing=hooks.reports_fail,
            log=env.log,
            monotonic=env.monotonic,
        )
        self.task_runner: TaskRunner = TaskRunner(
            env,
            HandlerServices(
                upload=self._uploads,
                simulations=self._simulators,
                caching=CacheTransfers(port, env.runner_id),
                child_jobs=self._child_jobs,
                mask=env.mask,
                sandbox=env.settings.sandbox,
                middleware=lambda: env.registry.chain,
            ),
            reporter=self.reporter,
            renewer=self.renewer,
            payloads=payloads,
            ended=self._task_ended,
            freed=hooks.room_made,
            left_behind=self._left_behind,
        )
        self._watchdog = Watchdog(
            (self.beat, self.reporter.beat, self.renewer.beat),
            env.settings,
            log=env.log,
            metrics=env.metrics,
            blocked_by=self.task_runner.on_the_loop,
            also=(env.awake.pulse, self.renewer.find_late, *env.host.also),
            monotonic=env.monotonic,
            threads=env.threads,
        )

        self.order_handler: OrderHandler = OrderHandler(
            self.task_runner, shutdown, log=env.log, hold=hooks.hold
        )
        self._shutdown, self._counts = shutdown, hooks.counts
        self.supervisor_client: SupervisorClient = SupervisorClient(
            _spec(env, self.task_runner.tasks()),
            env.connect,
            beat=self._sign_of_life,
            on_orders=self._ordered,
            look=self.renewer.renew_now,
            log=env.log,
            threads=env.threads,
        )

    def start(self, **loops: Callable[[], Awaitable[None]]) -> None:
        """Start all components; `loops` are run and supervised as well."""
        self._loop = self._uploads.loop = self._child_jobs.loop = asyncio.get_running_loop()
        self._loop_tasks = [
            asyncio.create_task(keep_running(name, body, self._env.log), name=f"loop {name}")
            for name, body in {"report": self.reporter.run, **loops}.items()
        ]
        self.renewer.start()
        self._watchdog.start()
        if self._env.settings.supervised:
            self.supervisor_client.start()

    async def stop(self) -> None:
        """Stop every loop and thread, and leftover handlers."""
        self.supervisor_client.stop("a shutdown was requested")
        for loop in self._loop_tasks:
            loop.cancel()
        await asyncio.gather(*self._loop_tasks, return_exceptions=True)
        await self.task_runner.close()
        self._simulators.stop()
        self.renewer.stop()
        self._watchdog.stop()

    def leftovers(self) -> dict[str, int]:
        """Return the number of unfinished things, by kind."""
        return {
            "tasks": self.task_runner.count(),
            "leases": len(self.renewer),
            "reports": int(self.reporter.busy()),
            "elsewhere": self.task_runner.outside_the_loop(),
        }

    def _renewed(self, results: Sequence[RenewalResult]) -> None:
        """Forward renewal results from the renewer's thread to the event loop."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self.task_runner.renewed, results)

    def _task_ended(self) -> None:
        """Notify the main loop and the order handler that a task has ended.

        After the first task the supervisor is notified as well.
        """
        self._room_made()
        if self.order_handler.orders.stop:
            self.order_handler.shut_down_if_drained()
        if not self._counted_once:
            self._counted_once = True
            self.supervisor_client.nudge()  # the first task makes it a running worker

    def trouble(self, crash: Exception) -> None:
        """Report the crash of a loop to the supervisor."""
        exhausted = isinstance(crash, MemoryError) or getattr(crash, "errno", 0) in _EXHAUSTED
        self.supervisor_client.trouble(
            "exhausted" if exhausted else "transient", f"{type(crash).__name__}: {crash}"
        )

    def _sign_of_life(self) -> WorkerBeat:
        """Return a heartbeat; called in the supervisor client's thread.

        So each number is read in one step.
        """
        active, (processed, failed) = self.task_runner.count(), self._counts()
        return WorkerBeat(
            active=active,
            begun=self._counted_once or active > 0,
            processed=processed,
            failed=failed,
            heeded=self.order_handler.completed,
        )

    def _ordered(self, orders: WorkerOrders) -> None:
        """Handle orders in the thread of the supervisor client.

        Termination must not wait for the event loop.
        """
        if orders.stop == "terminate":
            Terminated(self._shutdown, self._env.now()).follow()
        if self._loop is not None:
            call_in_loop(self._loop, partial(self._apply_orders, orders))

    def _apply_orders(self, orders: WorkerOrders) -> None:
        before = self.order_handler.completed
        self.order_handler.apply(orders)
        if self.order_handler.completed != before:
            self.supervisor_client.nudge()

    def _left_behind(self) -> None:
        if self._env.metrics is not None:
            self._env.metrics.left_behind()


def _spec(env: WorkerEnv, tasks: tuple[str, ...] | None) -> WorkerSpec:
    settings = env.settings
    return WorkerSpec(
        workspace_id=settings.workspace,
        name=settings.name,
        incarnation=env.runner_id.rpartition("#")[2],
        host=socket.gethostname(),
        pid=os.getpid(),
        queues=settings.queues,
        labels=settings.labels,
        tasks=tasks,
        capacity=settings.concurrency,
        metadata={**identity(), **versions(), **about_pool()},
    )
