"""How a handler is stopped: asked first, then made to, and left behind when nothing helps.

A coroutine is cancelled, a process is killed with its group, a thread cannot be stopped. What goes on
although nobody wants it any more is named in the log and counted, and its slot is used for others.
"""

from __future__ import annotations

from collections.abc import Callable

from interlock.worker.clocks import AwakeTime
from interlock.worker.logs import Log
from interlock.worker.running_task import RunningTask
from interlock.worker.settings import WorkerSettings


class Stopper:
    """Sees to it that handlers stop."""

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

    def ask(self, running: RunningTask) -> None:
        """It was told to stop and has a while to do so; then it is made to."""
        running.lane.executor.told(running)
        self._awake.call_later(self._settings.stop_grace_s, self._kill, running)

    def stop(self, running: RunningTask) -> None:
        """Make it stop now: whatever it does is not believed any more."""
        running.lane.executor.told(running)
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
            self._say("handler_cannot_be_stopped", running)

    def _leave(self, running: RunningTask) -> None:
        """It goes on all the same; once its task has ended the slot is free for others."""
        if running.handler_ended or running not in running.lane.running:
            return
        running.lane.executor.leave(running)
        if running.ended:
            running.lane.running.pop(running, None)
            self._freed()
        self._say("handler_left_behind", running)
        self._left_behind()

    def _say(self, message: str, running: RunningTask) -> None:
        executor = "" if running.lane is None else running.lane.name
        grant = running.grant
        self._log.warning(message, task_id=grant.job_id, task_type=grant.task, executor=executor)
