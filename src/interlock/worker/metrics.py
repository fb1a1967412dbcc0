"""What a worker counts, for Prometheus; under which names, `interlock.wire.metrics` says.

Loaded only when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from interlock.lifecycles.process import ProcessState, ReportShutdown
from interlock.machine import Refused, Step
from interlock.wire import metrics as table

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class Metrics:
    """The numbers of one worker process, in a registry of its own."""

    def __init__(self, worker_id: str, registry: CollectorRegistry | None = None) -> None:
        from prometheus_client import CollectorRegistry  # noqa: PLC0415 - half of a worker's start-up

        self.registry = registry = registry or CollectorRegistry()
        self._worker_id = worker_id
        self._state = table.WORKER_STATE.gauge(registry)
        self._process_moves = table.WORKER_TRANSITIONS.counter(registry)
        self._process_s = table.WORKER_SECONDS.histogram(registry)
        self._task_moves = table.TASK_TRANSITIONS.counter(registry)
        self._task_s = table.TASK_SECONDS.histogram(registry)
        self._refused = table.WORKER_REFUSED.counter(registry)
        self._stalled = table.WORKER_LOOP_STALLED.gauge(registry)
        self._left_behind = table.WORKER_LEFT_BEHIND.counter(registry)
        self._forced = table.WORKER_FORCED.gauge(registry)
        self._children: dict[tuple[str, int], tuple[Any, Any]] = {}
        """By task and step, which the table makes once: looking labels up costs more than counting."""
        self._left_behind.labels(worker_id)  # zero is told as well
        self._forced.labels(worker_id)
        for state in ProcessState:
            self._state.labels(worker_id, state.value).set(state is ProcessState.STARTING)

    def process_moved(self, step: Step[Any], seconds: float) -> None:
        """The process has left a state after so many seconds."""
        self._process_s.labels(self._worker_id, str(step.source)).observe(seconds)
        self._state.labels(self._worker_id, str(step.source)).set(0)
        self._state.labels(self._worker_id, str(step.target)).set(1)
        self._process_moves.labels(self._worker_id, str(step.source), str(step.target), step.event).inc()

    def task_moved(self, task_type: str, step: Step[Any], seconds: float) -> None:
        """A task has left a state after so many seconds."""
        key = (task_type, id(step))
        known = self._children.get(key)
        if known is None:
            source, target = str(step.source), str(step.target)
            known = self._children[key] = (
                self._task_moves.labels(task_type, source, target, step.event),
                self._task_s.labels(task_type, source),
            )
        known[0].inc()
        known[1].observe(seconds)

    def refused(self, refused: Refused[Any]) -> None:
        """A machine has refused an event."""
        self._refused.labels(refused.machine, str(refused.state), refused.asked).inc()

    def stalled(self, loop: str, *, silent: bool) -> None:
        """A loop has fallen silent, or is heard again."""
        self._stalled.labels(self._worker_id, loop).set(silent)

    def left_behind(self) -> None:
        """A handler could not be stopped."""
        self._left_behind.labels(self._worker_id).inc()

    def shut_down(self, report: ReportShutdown) -> None:
        """The process is about to be gone."""
        self._forced.labels(self._worker_id).set(report.forced)

    def serve(self, port: int, address: str = "") -> tuple[int, Callable[[], None]]:
        """Answer Prometheus under `/metrics`; gives the port (a free one for 0) and how to stop that."""
        from prometheus_client import start_http_server  # noqa: PLC0415

        server, thread = start_http_server(port, addr=address or "0.0.0.0", registry=self.registry)

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return server.server_port, stop
