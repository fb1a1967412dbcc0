"""Who is told about transitions: the log, the metrics, both, or nobody.

A worker that nobody watches pays nothing for it: the machines look at `listens` and go on. What is
refused is always told, because it should not happen.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from interlock.lifecycles.process import ReportShutdown
from interlock.machine import Refusal, Refused, Step
from interlock.wire.runner import Grant
from interlock.worker.logs import Log
from interlock.worker.metrics import Metrics


class Observer:
    """Tells the log and the metrics what the machines do."""

    def __init__(
        self,
        worker_id: str,
        log: Log,
        metrics: Metrics | None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._worker_id = worker_id
        self._log = log if log.is_enabled_for(logging.INFO) else None
        self._warn = log
        self._metrics = metrics
        self.listens = self._log is not None or metrics is not None
        self._monotonic = monotonic
        self._since = monotonic()
        """When the process has entered the state that it is in."""

    def process_moved(self, steps: Sequence[Step[Any]]) -> None:
        """The process has taken these steps."""
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

    def task_moved(self, grant: Grant, steps: Sequence[Step[Any]], entered_at: float) -> float:
        """A task has taken these steps out of a state it had entered then; answers when it left it."""
        now = self._monotonic()
        for step in steps:
            if not step.moves:
                continue
            if self._metrics is not None:
                self._metrics.task_moved(grant.task, step, now - entered_at)
            if self._log is not None:
                self._log.info(
                    "task_state_transition",
                    task_id=grant.job_id,
                    task_type=grant.task,
                    from_state=str(step.source),
                    to_state=str(step.target),
                    _event=step.event,
                )
            entered_at = now
        return entered_at

    def refused(self, refused: Refused[Any], grant: Grant | None = None) -> None:
        """A machine has refused an event; one that the table ignores on purpose is no news."""
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
        """What the table wants published: the last words of a process."""
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
