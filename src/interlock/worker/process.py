"""A worker process: connect, poll, claim, back off, shut down. The process table decides every step.

    starting → connecting → recovering → running ⇄ backing_off → shutting_down → stopped

Each state has one method that does the work of the state and then sends the machine an event; `run` only
calls the method of the current state. The components beside the loop are in `components`. A signal is only
recorded (`host.Shutdown`); the loop acts on it in its next iteration.

`Connection` is the connection of this loop. Each time it is opened a new port is made, because a broken one
may stay broken; closing one never delays the loop.

Why: decisions 0016, 0161, 0280 and 0351.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeAlias, TypeVar

from interlock.backoff import MOST_DOUBLINGS
from interlock.errors import InterlockError, StoreUnavailable
from interlock.lifecycles.process import (
    BACKING_OFF,
    CONNECTING,
    PROCESS,
    RECOVERING,
    RUNNING,
    SHUTDOWN_DEADLINE,
    SHUTTING_DOWN,
    STARTING,
    STOPPED,
    UP,
    PollCycleComplete,
    Process,
    ProcessState,
    RecoveryComplete,
    ShutdownComplete,
    accepts_tasks,
    backoff_complete,
    connected,
    connection_failed,
    error,
    initialized,
    no_tasks_available,
    shutdown_deadline,
    shutdown_requested,
)
from interlock.machine import Deadline, Event
from interlock.wire.runner import Answer, ClaimRequest, Message
from interlock.worker.components import Components, ProcessHooks
from interlock.worker.environment import HERE, NO_METERS, Meters, WorkerEnv, WorkerHost
from interlock.worker.host import Shutdown, StoreTime, call_in_loop, set_within, unless
from interlock.worker.leases import MAX_BATCH
from interlock.worker.limits import declare_limits
from interlock.worker.port import LongPollPort, OrchestratorPort
from interlock.worker.schedules import declare
from interlock.worker.settings import WorkerSettings
from interlock.worker.tasks import Registry
from interlock.worker.telemetry import Log, Observer

LET_GO_S = 1.0


class Connection:
    """At most one port, and its subscription."""

    def __init__(
        self,
        connect: Callable[[], OrchestratorPort],
        *,
        now: StoreTime,
        woken: Callable[[], None],
        monotonic: Callable[[], float],
    ) -> None:
        self._connect = connect
        self._now = now
        self._woken = woken
        self._monotonic = monotonic
        self._port: OrchestratorPort | None = None
        self._long_poll: LongPollPort | None = None
        """The port, if it is patient; to compare it with a protocol for each claim costs 20 µs."""
        self._unsubscribe: Callable[[], None] = lambda: None
        self.recovered_at: float = float("-inf")
        """Time at which expired deadlines were last handled."""

    @property
    def port(self) -> OrchestratorPort:
        """The open port; raises if there is none."""
        if self._port is None:
            raise StoreUnavailable("There is no connection at the moment.")
        return self._port

    @property
    def is_open(self) -> bool:
        """Whether there is a port."""
        return self._port is not None

    async def open(self, timeout_s: float) -> bool:
        """Connect, read the store's time, and subscribe."""
        port = self._connect()
        try:
            async with asyncio.timeout(timeout_s):
                await port.connect()
                self._now.learn(await port.now())
        except (TimeoutError, OSError) as error:
            await _let_go(port, LET_GO_S)
            raise StoreUnavailable(str(error) or f"No answer within {timeout_s:g} s.") from error
        except BaseException:
            await _let_go(port, LET_GO_S)
            raise
        self._port = port
        self._long_poll = port if isinstance(port, LongPollPort) else None
        self._unsubscribe = port.subscribe(self._woken)
        return True

    def granted_after(self, requested_at: float) -> float:
        """Return the time from which leases of the last claim are trusted."""
        port = self._long_poll
        return requested_at if port is None else max(requested_at, port.granted_after)

    def stop_waiting(self) -> None:
        """Stop waiting for jobs at the server."""
        if self._long_poll is not None:
            self._long_poll.stop_waiting()

    def resume_waiting(self) -> None:
        """Wait for jobs again."""
        if self._long_poll is not None:
            self._long_poll.resume_waiting()

    async def release(self, within_s: float = LET_GO_S) -> None:
        """Close the port, if there is one."""
        port, self._port, self._long_poll = self._port, None, None
        if port is not None:
            self._unsubscribe()
            await _let_go(port, within_s)

    async def recover(self) -> int:
        """Handle expired deadlines."""
        dealt_with = await self.port.recover()
        self.recovered_at = self._monotonic()
        return dealt_with


async def _let_go(port: OrchestratorPort, within_s: float) -> None:
    with contextlib.suppress(Exception):
        async with asyncio.timeout(within_s):
            await port.disconnect()


T = TypeVar("T")
StoreRequest: TypeAlias = Callable[[], Coroutine[Any, Any, T]]
_SHORTEST_WAIT_S = 0.01
_LONGER_PAUSE_S = 1.0
"""Pause between two requests to a store that has been unavailable for a while."""
_LAST_CLAIM_S = 5.0
"""Deadline for a claim that is under way at shutdown."""


class WorkerProcess:
    """One worker, from its start to its end."""

    def __init__(
        self,
        settings: WorkerSettings,
        registry: Registry,
        connect: Callable[[], OrchestratorPort],
        *,
        incarnation: str,
        log: Log,
        shutdown: Shutdown | None = None,
        meters: Meters = NO_METERS,
        host: WorkerHost = HERE,
    ) -> None:
        self.runner_id: str = f"{settings.name}#{incarnation}"
        self.shutdown: Shutdown = shutdown or Shutdown()
        self._settings, self._durations = settings, settings.durations
        self._log = log.bind(worker_id=self.runner_id)
        self._monotonic = monotonic = host.monotonic
        self._watch = Observer(self.runner_id, log, meters.metrics, monotonic)
        self._now = StoreTime(monotonic, host.local)
        self._wakeup = asyncio.Event()
        """Set when there is a change that the loop may wait for."""
        self._stop_requested = asyncio.Event()
        self._woken = self._broken = False
        self._polled_at = float("-inf")
        self._crashes = self._misfits = 0
        self._fatal: InterlockError | None = None
        self._forced = False
        self._schedules = dict(registry.schedules)
        self._limits = dict(registry.limits)
        self._steps: dict[ProcessState, Callable[[], Awaitable[None]]] = {
            STARTING: self._start,
            CONNECTING: self._connect,
            RECOVERING: self._recover,
            RUNNING: self._poll,
            BACKING_OFF: self._back_off,
            SHUTTING_DOWN: self._shut_down,
        }
        env = WorkerEnv(
            runner_id=self.runner_id,
            settings=settings,
            registry=registry,
            connect=connect,
            log=self._log,
            watch=self._watch,
            metrics=meters.metrics,
            tracing=meters.tracing,
            now=self._now,
            awake=self.shutdown.awake,
            host=host,
        )
        self._pauses_s = [settings.backoff_s(count) for count in range(MOST_DOUBLINGS + 2)]
        """Pauses by the number of consecutive failures; the last one is as long as they get."""
        self._connection = Connection(connect, now=self._now, woken=self._wake, monotonic=monotonic)
        self._components = Components(
            env,
            send=self._send_messages,
            port=lambda: self._connection.port,
            shutdown=self.shutdown,
            hooks=ProcessHooks(
                room_made=self._wakeup.set,
                reports_fail=self._reports_fail,
                poll_awaited=self._should_poll,
                counts=lambda: (self._process.data.processed, self._process.data.failed),
                hold=self._hold,
            ),
        )
        self._task_runner = self._components.task_runner
        self._machines = self._task_runner.machines
        self._process = self._machines.process
        """Its state and its data, by the table."""

    @property
    def state(self) -> ProcessState:
        """The state, by its table."""
        state: ProcessState = self._process.state
        return state

    @property
    def data(self) -> Process:
        """The data of its machine."""
        data: Process = self._process.data
        return data

    async def run(self) -> int:
        """Run until a shutdown is requested; return the exit code.

        It is 0 if every task ended or was released, and 1 if forced. Raise permanent connection errors, such
        as a store of another version.
        """
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        unsubscribe = self.shutdown.subscribe(self._on_shutdown)
        try:
            while self._process.state is not STOPPED:
                await self._step()
        finally:
            unsubscribe()
            await self._components.stop()
            await self._connection.release()
        if self._fatal is not None:
            raise self._fatal
        return int(self._forced)

    def leftovers(self) -> dict[str, int]:
        """Return the unfinished things by kind, to detect leaks."""
        return {name: number for name, number in self._components.leftovers().items() if number}

    def send(self, event: Event) -> bool:
        """Apply an event by the table; return whether it was accepted."""
        return self._machines.send_to(PROCESS, self._process, event) is None

    async def _step(self) -> None:
        """Do the work of the current state; an exception does not end the process."""
        self._components.beat.at = self._monotonic()
        if self.shutdown.requested and self._process.state in UP:
            self.send(shutdown_requested)
        try:
            await self._steps[self._process.state]()
        except Exception as crash:  # noqa: BLE001 - a loop survives any error of its body
            await self._begin_again(crash)

    # States

    async def _start(self) -> None:
        self._components.start(recover=self._recover_now_and_then)
        self._log.info("worker_started", queues=self._settings.queues, concurrency=self._settings.concurrency)
        self.send(initialized)

    async def _connect(self) -> None:
        """Open the connection, with retries while the store is unavailable."""
        reached = await self._open()
        if reached:
            self.send(connected)
        elif reached is None:
            self.send(connection_failed)
            await self._pause(wakes=False)

    async def _recover(self) -> None:
        """Handle expired deadlines, unless that was just done."""
        if self._monotonic() >= self._connection.recovered_at + self._durations.sweep_every_s:
            await self._request(self._connection.recover, "recovery_failed")
        if self._limits:
            await self._request(self._declare_limits, "limits_not_registered")
        if self._schedules:
            await self._request(self._declare_schedules, "schedules_not_registered")
        if self._process.state is RECOVERING:
            self.send(RecoveryComplete(at=self._now()))

    async def _declare_limits(self) -> None:
        """Register the limits of its module, once in its life."""
        await declare_limits(self._connection.port, self._limits, self._log)
        self._limits = {}

    async def _declare_schedules(self) -> None:
        """Register the schedules of its module, once in its life."""
        await declare(self._connection.port, self._schedules, self._log)
        self._schedules = {}

    async def _poll(self) -> None:
        """Claim what there is room for, begin it and poll again; or wait."""
        self._wakeup.clear()
        request = self._next_request()
        if self._broken:
            await self._open_again(StoreUnavailable("Reports cannot be delivered."))
        elif request is None:
            await self._wakeup.wait()
        else:
            await self._poll_for(request)

    async def _back_off(self) -> None:
        """Wait, each time longer; woken by new work and by a shutdown."""
        await self._pause(wakes=True)
        if not self.shutdown.requested:
            self.send(backoff_complete)

    async def _shut_down(self) -> None:
        """Let tasks finish, then stop, then kill them; end in time in any case."""
        requested_at = self.shutdown.requested_at or self.shutdown.awake()
        times = self.shutdown.times(self._durations)

        def expiry_of(timer: Deadline) -> float:
            return requested_at + float(getattr(times, timer.setting))

        while (timer := min(self._machines.timers, key=expiry_of)) != SHUTDOWN_DEADLINE:
            if await self._all_ended(expiry_of(timer)):
                break
            self._machines.expire(timer)
        in_time = await self._all_ended(requested_at + times.last_acts_at_s)
        await self._task_runner.close()
        await self._connection.release(times.closing_s)
        self._forced = not (in_time and self.send(ShutdownComplete()))
        if self._forced:
            self._machines.expire(SHUTDOWN_DEADLINE)

    # Polling

    def _next_request(self) -> ClaimRequest | None:
        """Return the next claim, to start or to prefetch; None without room."""
        if not self._components.order_handler.orders.take or not accepts_tasks(
            self._process.state, self._process.data
        ):
            return None
        room, begin = self._task_runner.capacity()
        limit = min(room, MAX_BATCH)
        if limit <= 0:
            return None
        return ClaimRequest(
            runner_id=self.runner_id,
            queues=self._settings.queues,
            labels=self._settings.labels,
            tasks=self._task_runner.tasks(),
            limit=limit,
            worker_id=self._components.supervisor_client.worker_id,
            acknowledge=begin,
        )

    async def _poll_for(self, request: ClaimRequest) -> None:
        self._woken, self._polled_at = False, self._monotonic()
        last_s = min(_LAST_CLAIM_S, self._durations.shutdown_soft_s)
        grants = await self._request(lambda: self._connection.port.claim(request), "claim_failed", last_s)
        if not grants:
            if grants is not None:
                self.send(no_tasks_available)
            return
        self._crashes = 0
        self.send(PollCycleComplete(started=len(grants)))
        trusted_from = self._connection.granted_after(self._polled_at)
        # After a full claim more jobs probably wait: the next claim is sent before handlers occupy the loop.
        full = request.acknowledge and len(grants) == request.limit > 1
        unknown = self._task_runner.take(
            grants, trusted_from, begin=not self.shutdown.requested, next_turn=full
        )
        if not request.acknowledge:
            self._loop.call_later(self._durations.ack_window_s / 2, self._task_runner.release_old)
        if not full:
            await asyncio.sleep(0)
        self._misfits = self._misfits + 1 if unknown else 0
        if unknown:  # so that other workers get them
            await set_within(self._stop_requested, self._settings.backoff_s(self._misfits))

    def _should_poll(self) -> bool:
        """Return whether the loop has work to do, for the watchdog."""
        if self._process.state is RUNNING:
            return self._next_request() is not None
        return self._process.state in (CONNECTING, RECOVERING)

    def _hold(self, held: bool) -> None:
        """Stop waiting for jobs at the server while held; or allow it again."""
        self._wakeup.set()
        (self._connection.stop_waiting if held else self._connection.resume_waiting)()

    # Failures

    async def _request(self, request: StoreRequest[T], message: str, then_s: float = 0.0) -> T | None:
        """Return the answer to a request, with retries.

        It is retried until it is answered or the connection is broken. The timeout starts with the first
        failure: a slow answer while this host or the store's stalled does not mean that the connection is
        broken.
        """
        until, pause_s = None, self._settings.first_backoff_s
        while True:
            try:
                return await unless(self._stop_requested, request(), then_s)
            except StoreUnavailable as failure:
                if self.shutdown.requested:
                    return None
                now = self.shutdown.awake()
                until = now + self._settings.patience_s if until is None else until
                if now >= until:
                    if not await self._open_again(failure):
                        return None
                    until, pause_s = None, _LONGER_PAUSE_S
                self._log.warning(message, error=failure.sentence)
                await set_within(self._stop_requested, pause_s)

    async def _open_again(self, failure: StoreUnavailable) -> bool:
        """Replace a failing connection while there are leases.

        Without leases it is broken. Leases are renewed over a separate connection, and each is given up when
        it can no longer be trusted: a shorter outage of the store costs no task.
        """
        self._broken = False
        if not self._task_runner.active:
            await self._break(failure)
            return False
        await self._connection.release()
        await self._open()
        return True

    async def _open(self) -> bool | None:
        """Open the connection; return None if unanswered, False if pointless."""
        try:
            opening = self._connection.open(self._settings.connect_timeout_s)
            return bool(await unless(self._stop_requested, opening))
        except StoreUnavailable as failure:
            self._log.warning("connection_failed", error=failure.sentence)
            return None
        except InterlockError as failure:  # permanent: retrying would not help
            self._fatal = failure
            self.shutdown.request()
            return False

    async def _break(self, failure: InterlockError) -> None:
        """Handle a lost connection: abandon the tasks and close it."""
        self._broken = False
        self._log.warning("connection_lost", error=failure.sentence, tasks=self._task_runner.count())
        self.send(error)
        self._task_runner.disconnected()
        await self._connection.release()
        self._woken = False

    async def _begin_again(self, crash: Exception) -> None:
        """Log a crashed step, a bug here or in a port, and continue later."""
        self._log.error("loop_crashed", loop="poll", error=f"{type(crash).__name__}: {crash}", exc_info=True)
        self._crashes += 1
        self._components.trouble(crash)
        if self._process.state is SHUTTING_DOWN:
            self._forced = True
            self.send(shutdown_deadline)
        elif self._process.state in (RUNNING, RECOVERING):
            await self._break(InterlockError(f"The loop has crashed: {crash}"))
        await set_within(self._stop_requested, self._settings.backoff_s(self._crashes))

    async def _send_messages(self, messages: Sequence[Message]) -> list[Answer]:
        """Deliver reports, also during shutdown."""
        if self._process.state is SHUTTING_DOWN and not self._connection.is_open:
            await self._connection.open(self._settings.connect_timeout_s)
        return await self._connection.port.report(messages)

    def _reports_fail(self, for_s: float) -> None:
        if for_s >= self._settings.patience_s and self._process.state is RUNNING:
            self._broken = True
            self._wakeup.set()

    async def _recover_now_and_then(self) -> None:
        """Handle expired deadlines periodically, for a process that is never idle."""
        while True:
            await asyncio.sleep(self._durations.sweep_every_s)
            due = self._monotonic() >= self._connection.recovered_at + self._durations.sweep_every_s
            if due and self._process.state is RUNNING:
                with contextlib.suppress(StoreUnavailable):  # the next poll handles it
                    await self._connection.recover()

    # Waiting

    async def _pause(self, *, wakes: bool) -> None:
        """Back off as the count of the table demands; `wakes` ends it early."""
        pauses_s = self._pauses_s
        until = self._monotonic() + pauses_s[min(self._process.data.backoff_count, len(pauses_s) - 1)]
        while not self._stop_requested.is_set() and not (wakes and self._woken):
            self._wakeup.clear()
            if not await set_within(self._wakeup, until - self._monotonic()):
                return
        if (floor_s := self._polled_at + self._settings.poll_floor_s - self._monotonic()) > 0:
            await set_within(self._stop_requested, floor_s)

    async def _all_ended(self, until: float) -> bool:
        """Return whether tasks and reports are done by a deadline of `awake`."""
        while not await self._all_end_within(until - self.shutdown.awake()):
            if self.shutdown.awake() >= until:
                return False
        return True

    async def _all_end_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(max(_SHORTEST_WAIT_S, seconds)):
                while self._task_runner.active:
                    self._wakeup.clear()
                    await self._wakeup.wait()
                await self._components.reporter.flushed()
        except TimeoutError:
            return False
        return True

    def _on_shutdown(self) -> None:
        """Wake the event loop after a shutdown request, in a signal handler."""
        for wake in (self._stop_requested.set, self._wakeup.set, self._connection.stop_waiting):
            call_in_loop(self._loop, wake)

    def _wake(self) -> None:
        """Handle a notification of jobs, cheaply and from any thread."""
        if self._woken:
            return
        self._woken = True
        if threading.get_ident() == self._thread:  # after a commit of this loop itself
            self._wakeup.set()
        else:
            call_in_loop(self._loop, self._wakeup.set)
