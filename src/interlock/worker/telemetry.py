"""The telemetry of a worker: log lines, Prometheus metrics, and transitions as both.

Logs are one line per event, JSON in a pipe, readable on a terminal. The name of a line is its `message`,
because `event` is the event of a machine:

    {"message": "task_state_transition", "task_id": "j_0123456789ab", "task_type": "resize",
     "from_state": "claiming", "to_state": "processing", "event": "claim_succeeded", ...}

A record of `logging` that a handler makes has `task_id` and `task_type` as well, and values bound with
`structlog.contextvars`.

A lease token is a secret. It is never logged deliberately; one that appears in a line anyway (in the text of
an error of a handler, say) is redacted before the line is written.

The names of the metrics are in `interlock.wire.metrics`; the Prometheus client is loaded only if metrics are
enabled. `Observer` forwards transitions. Without a log and metrics it costs nothing: the machines check
`listens`. Refusals are always logged, because they should not happen.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

import msgspec
import structlog
from structlog.contextvars import get_contextvars
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from interlock.lifecycles.process import ProcessState, ReportShutdown
from interlock.machine import Refusal, Refused, Step
from interlock.wire import metrics as table
from interlock.wire.runner import Grant
from interlock.worker.context import running

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


Log: TypeAlias = FilteringBoundLogger

TASK_MOVED = "task_state_transition"
_TOKEN = re.compile(r"\b(j_[0-9a-f]{12}\.\d+\.\d+)\.[0-9A-Za-z_-]{8,}")
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def make_log(level: str = "info", form: str = "auto", stream: TextIO | None = None) -> Log:
    """Return a log that writes to `stream`, by default standard error."""
    stream = sys.stderr if stream is None else stream
    render = _renderer(form, stream)
    log: Log = structlog.wrap_logger(
        _Lines(stream, is_json=isinstance(render, structlog.processors.JSONRenderer)),
        processors=[*_facts(), *_words(), render, _scrub],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
    )
    return log


@contextlib.contextmanager
def libraries_logging(
    level: str = "info", form: str = "auto", stream: TextIO | None = None
) -> Iterator[None]:
    """Write log records of libraries in the same format while entered."""
    stream = sys.stderr if stream is None else stream
    handler = _Handler(_Lines(stream), _renderer(form, stream))
    handler.setLevel(_LEVELS[level])  # other handlers may have another level
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(_LEVELS[level])
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)


def _facts() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]


def _words() -> list[Processor]:
    return [structlog.processors.EventRenamer("message", replace_by="_event")]


def _renderer(form: str, stream: TextIO) -> Processor:
    terminal = stream.isatty()
    if form == "text" or (form == "auto" and terminal):
        colors = terminal and not os.environ.get("NO_COLOR")
        return structlog.dev.ConsoleRenderer(colors=colors, event_key="message")
    return structlog.processors.JSONRenderer(serializer=_json)


def _json(line: EventDict, **_: Any) -> str:
    return msgspec.json.encode(line, enc_hook=repr).decode()


def _scrub(_logger: WrappedLogger, _method: str, line: Any) -> str:
    return _TOKEN.sub(r"\1.***", line)


class _Lines:
    """Writes whole lines from any thread. A closed reader must not end the worker."""

    def __init__(self, stream: TextIO, *, is_json: bool = False) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self.is_json: bool = is_json

    def msg(self, line: str) -> None:
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._stream.write(f"{line}\n")
            self._stream.flush()

    debug = info = warning = error = critical = exception = log = msg


class _Handler(logging.Handler):
    """Formats records of `logging` like other lines."""

    def __init__(self, lines: _Lines, render: Processor) -> None:
        super().__init__()
        self._lines = lines
        context, _level, *others = _facts()
        self._chain: list[Callable[..., Any]] = [context, *others, *_words(), render, _scrub]

    def emit(self, record: logging.LogRecord) -> None:
        line: Any = {"event": _text(record), "level": record.levelname.lower(), "logger": record.name}
        if (handling := running()) is not None:
            line |= {"task_id": handling.job_id, "task_type": handling.task}
        if record.exc_info:
            line["exc_info"] = record.exc_info
        for process in self._chain:
            line = process(None, record.levelname.lower(), line)
        self._lines.msg(line)


def _json_lines_of(log: Log) -> _Lines | None:
    """Return where a log writes JSON; None for other logs.

    None is returned as well for a log with fields of its own.
    """
    lines = getattr(log, "_logger", None)
    plain = isinstance(lines, _Lines) and lines.is_json and not structlog.get_context(log.bind())
    return lines if plain else None


def _log_moves(log: Log, lines: _Lines | None, grants: Sequence[Grant], moves: Sequence[Step[Any]]) -> None:
    """Write a line for each move of each task.

    Every task has four of them, so lines of JSON are made without the chain of processors, and are
    written together: ten at once take a third of the processor time.
    """
    if lines is None or get_contextvars():
        for grant in grants:
            for step in moves:
                log.info(TASK_MOVED, **_move(grant, step), _event=step.event)
        return
    end = {"level": "info", "timestamp": _timestamp(), "message": TASK_MOVED}
    written = [
        _json({**_move(grant, step), **end, "event": step.event}) for grant in grants for step in moves
    ]
    lines.msg(_scrub(None, "info", "\n".join(written)))


def _move(grant: Grant, step: Step[Any]) -> dict[str, str]:
    return {
        "task_id": grant.job_id,
        "task_type": grant.task,
        "from_state": str(step.source),
        "to_state": str(step.target),
    }


def _timestamp() -> str:
    """Return the time as `TimeStamper` writes it."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def _text(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - a badly formatted line is kept
        return str(record.msg)


class Metrics:
    """The metrics of one worker process, in a separate registry."""

    def __init__(self, worker_id: str, registry: CollectorRegistry | None = None) -> None:
        from prometheus_client import CollectorRegistry  # noqa: PLC0415 - half of a worker's start-up

        self.registry: CollectorRegistry = registry or CollectorRegistry()
        registry = self.registry
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
        """Counters by task and step: looking up labels costs more than counting."""
        self._left_behind.labels(worker_id)  # zero is reported as well
        self._forced.labels(worker_id)
        for state in ProcessState:
            self._state.labels(worker_id, state.value).set(state is ProcessState.STARTING)

    def process_moved(self, step: Step[Any], seconds: float) -> None:
        """Record that the process left a state."""
        self._process_s.labels(self._worker_id, str(step.source)).observe(seconds)
        self._state.labels(self._worker_id, str(step.source)).set(0)
        self._state.labels(self._worker_id, str(step.target)).set(1)
        self._process_moves.labels(self._worker_id, str(step.source), str(step.target), step.event).inc()

    def task_moved(self, task_type: str, step: Step[Any], seconds: float) -> None:
        """Record that a task left a state."""
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
        """Count a refused event."""
        self._refused.labels(refused.machine, str(refused.state), refused.asked).inc()

    def stalled(self, loop: str, *, silent: bool) -> None:
        """Record that a loop has stalled, or works again."""
        self._stalled.labels(self._worker_id, loop).set(silent)

    def left_behind(self) -> None:
        """Count a handler that could not be stopped."""
        self._left_behind.labels(self._worker_id).inc()

    def shut_down(self, report: ReportShutdown) -> None:
        """Record the end of the process."""
        self._forced.labels(self._worker_id).set(report.forced)

    def serve(self, port: int, address: str = "") -> tuple[int, Callable[[], None]]:
        """Serve `/metrics`; return the port and a function that stops it.

        Port 0 chooses a free one.
        """
        from prometheus_client import start_http_server  # noqa: PLC0415

        server, thread = start_http_server(port, addr=address or "0.0.0.0", registry=self.registry)

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return server.server_port, stop


class Observer:
    """Forwards steps of the machines to the log and the metrics."""

    def __init__(
        self,
        worker_id: str,
        log: Log,
        metrics: Metrics | None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._worker_id = worker_id
        self._log = log if log.is_enabled_for(logging.INFO) else None
        self._lines = _json_lines_of(log)
        self._warn = log
        self._metrics = metrics
        self.listens: bool = self._log is not None or metrics is not None
        self._monotonic = monotonic
        self._since = monotonic()
        """Time at which the process entered its state."""

    def process_moved(self, steps: Sequence[Step[Any]]) -> None:
        """Report steps of the process."""
        now = self._monotonic()
        for step in steps:
            if not step.moves:
                continue
            entered_at, self._since = self._since, now
            if self._metrics is not None:
                self._metrics.process_moved(step, now - entered_at)
            if self._log is not None:
                self._log.info(
                    "worker_state_transition",
                    worker_id=self._worker_id,
                    from_state=str(step.source),
                    to_state=str(step.target),
                    _event=step.event,
                )

    def tasks_moved(
        self, grants: Sequence[Grant], steps: Sequence[Step[Any]], entered_at: Sequence[float]
    ) -> list[float]:
        """Report the steps that tasks took together.

        `entered_at`: when each entered the state that it left. Returned is when each entered its present one.
        """
        now = self._monotonic()
        moves = [step for step in steps if step.moves]
        if not moves or not grants:
            return [*entered_at]
        if self._metrics is not None:
            for grant, since in zip(grants, entered_at, strict=True):
                for step in moves:
                    self._metrics.task_moved(grant.task, step, now - since)
                    since = now  # noqa: PLW2901 - later steps took no time
        if self._log is not None:
            _log_moves(self._log, self._lines, grants, moves)
        return [now] * len(grants)

    def task_moved(self, grant: Grant, steps: Sequence[Step[Any]], entered_at: float) -> float:
        """Report the steps of one task: see `tasks_moved`."""
        [entered_at] = self.tasks_moved((grant,), steps, (entered_at,))
        return entered_at

    def refused(self, refused: Refused[Any], grant: Grant | None = None) -> None:
        """Log and count a refusal, unless the table ignores the event on purpose."""
        if refused.kind is Refusal.IGNORED:
            return
        if self._metrics is not None:
            self._metrics.refused(refused)
        known = {} if grant is None else {"task_id": grant.job_id, "task_type": grant.task}
        self._warn.warning(
            "invalid_transition_attempted",
            worker_id=self._worker_id,
            machine=refused.machine,
            current_state=str(refused.state),
            _event=refused.asked,
            reason=refused.sentence,
            **known,
        )

    def announce(self, effects: Sequence[object]) -> None:
        """Publish effects: the shutdown report of a process."""
        for effect in effects:
            if isinstance(effect, ReportShutdown):
                self._shut_down(effect)

    def _shut_down(self, report: ReportShutdown) -> None:
        if self._metrics is not None:
            self._metrics.shut_down(report)
        self._warn.info(
            "worker_shutdown",
            worker_id=self._worker_id,
            processed=report.processed,
            failed=report.failed,
            forced=report.forced,
        )
