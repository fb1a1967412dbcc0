"""Watch every loop, so that a stalled worker is noticed.

A loop beats in each iteration. A separate thread checks all of them: one that has work to do and has not
beaten for a while is reported as stalled, in the log and in a gauge, until it beats again. The event loop is
watched in the same way, by a callback; when a handler has blocked it for very long, the handler is named,
with its current line.

The same thread is the last to act in a shutdown: when the event loop cannot, it ends the process.

Why: decision 0287.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence

from interlock.worker.host import MACHINE, Join, LoopTick, Threads
from interlock.worker.settings import WorkerSettings
from interlock.worker.telemetry import Log, Metrics

EVERY_S = 0.25


class Watchdog:
    """The thread that watches the loops."""

    def __init__(
        self,
        beats: Sequence[LoopTick],
        settings: WorkerSettings,
        *,
        log: Log,
        metrics: Metrics | None,
        blocked_by: Callable[[], str],
        also: Sequence[Callable[[], object]] = (),
        monotonic: Callable[[], float] = time.monotonic,
        threads: Threads = MACHINE,
    ) -> None:
        self._beats = beats
        self._log = log
        self._metrics = metrics
        self._stalled_after_s = settings.stalled_after_s
        self._stuck_after_s = settings.stuck_after_s
        self._blocked_by = blocked_by
        self._also = also
        self._monotonic = monotonic
        self._answer = LoopTick("event loop", monotonic)
        self._probing = False
        self._named = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._threads = threads
        self._join: Join | None = None

    def start(self) -> None:
        """Start; called in the event loop to watch."""
        self._loop, self._loop_thread = asyncio.get_running_loop(), threading.get_ident()
        self._answer.at = self._monotonic()
        every_s = min(EVERY_S, self._stalled_after_s / 4)
        self._join = self._threads.repeat("interlock-watchdog", every_s, self._watch)

    def stop(self) -> None:
        """Stop the thread, if it was started."""
        if self._join is not None:
            self._join(1.0)

    def look(self) -> None:
        """Check every loop once."""
        self._probe()
        for beat in (*self._beats, self._answer):
            self._judge(beat)
        self._name_the_blocker()
        for act in self._also:
            act()

    def _watch(self) -> None:
        try:
            self.look()
        except Exception as error:  # noqa: BLE001 - the watchdog must outlive the loops
            self._log.error("loop_crashed", loop="supervise", error=f"{type(error).__name__}: {error}")

    def _probe(self) -> None:
        """Schedule a beat of the event loop, unless one is pending."""
        if self._probing or self._loop is None:
            return
        self._probing = True
        with contextlib.suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(self._answered)

    def _answered(self) -> None:
        self._probing = self._named = False
        self._answer.at = self._monotonic()

    def _judge(self, beat: LoopTick) -> None:
        silent_s = beat.silent_s()
        stalled = silent_s > self._stalled_after_s
        if stalled is beat.stalled:
            return
        beat.stalled = stalled
        if self._metrics is not None:
            self._metrics.stalled(beat.name, silent=stalled)
        if stalled:
            self._log.warning("loop_stalled", loop=beat.name, silent_s=round(silent_s, 3))
        else:
            self._log.info("loop_heard_again", loop=beat.name)

    def _name_the_blocker(self) -> None:
        silent_s = self._answer.silent_s()
        if self._named or silent_s <= self._stuck_after_s:
            return
        self._named = True
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 - no public interface
        stack = traceback.format_stack(frame)[-5:] if frame is not None else []
        self._log.error(
            "event_loop_blocked",
            handler=self._blocked_by(),
            silent_s=round(silent_s, 3),
            stack="".join(stack),
        )
