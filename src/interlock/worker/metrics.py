"""What a worker counts, for Prometheus. Loaded only when somebody asks for it.

worker_state{worker_id,state}                                        1 for the state it is in, else 0
worker_state_transitions_total{worker_id,from_state,to_state,event}
task_state_transitions_total{task_type,from_state,to_state,event}
task_state_duration_seconds{task_type,state}                         observed on leaving the state
refused_transitions_total{machine,state,event}
worker_loop_stalled{worker_id,loop}                                  1 while a loop is silent
worker_handlers_left_behind_total{worker_id}                         that could not be stopped
worker_shutdown_forced{worker_id}                                    1 when it had to be
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from interlock.lifecycles.process import ProcessState, ReportShutdown
from interlock.machine import Refused, Step

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_LONG = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0, 3_600.0)


class Metrics:
    """The numbers of one worker process, in a registry of its own."""

    def __init__(self, worker_id: str, registry: CollectorRegistry | None = None) -> None:
        import prometheus_client as prometheus  # noqa: PLC0415 - half of a worker's start-up, if it is wanted

        self.registry = registry = registry or prometheus.CollectorRegistry()
        self._worker_id = worker_id
        self._state = prometheus.Gauge(
            "worker_state", "Current worker state.", ["worker_id", "state"], registry=registry
        )
        self._process_moves = prometheus.Counter(
            "worker_state_transitions_total",
            "Worker state transitions.",
            ["worker_id", "from_state", "to_state", "event"],
            registry=registry,
        )
        self._task_moves = prometheus.Counter(
            "task_state_transitions_total",
            "Task state transitions.",
            ["task_type", "from_state", "to_state", "event"],
            registry=registry,
        )
        self._durations = prometheus.Histogram(
            "task_state_duration_seconds",
            "Time spent in each task state.",
            ["task_type", "state"],
            registry=registry,
            buckets=_LONG,
        )
        self._refused = prometheus.Counter(
            "refused_transitions_total",
            "Events that a machine has refused.",
            ["machine", "state", "event"],
            registry=registry,
        )
        self._stalled = prometheus.Gauge(
            "worker_loop_stalled", "Loops that are silent.", ["worker_id", "loop"], registry=registry
        )
        self._left_behind = prometheus.Counter(
            "worker_handlers_left_behind_total",
            "Handlers that could not be stopped.",
            ["worker_id"],
            registry=registry,
        )
        self._forced = prometheus.Gauge(
            "worker_shutdown_forced", "Whether the shutdown was forced.", ["worker_id"], registry=registry
        )
        self._children: dict[tuple[str, int], tuple[Any, Any]] = {}
        """By task and step, which the table makes once: looking labels up costs more than counting."""
        for state in ProcessState:
            self._state.labels(worker_id, state.value).set(state is ProcessState.STARTING)

    def process_moved(self, step: Step[Any]) -> None:
        """The process has taken a step."""
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
                self._durations.labels(task_type, source),
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
