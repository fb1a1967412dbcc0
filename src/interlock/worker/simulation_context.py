"""The course of one simulation in a handler: which step it is at, and what is to be said about it.

Nothing here waits or sends, so that it is the same for functions and for coroutines. A step is saved
when it has been a moment since the last one was; so one whose steps are long is saved after each, and
one that takes thousands of them in a second does not spend its time on saving.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from interlock.errors import InvalidArguments, JobError, TooLarge
from interlock.wire.samples import MOST_METRICS, Sample, Samples, fault_of
from interlock.wire.simulations import (
    Beat,
    Completed,
    Danger,
    Failed,
    Paused,
    SimulationOrders,
)
from interlock.worker.codec import decode, encode
from interlock.worker.context import Context, TaskCancelled
from interlock.worker.outgoing import cut

SAVE_EVERY_S = 0.2
MAX_STATE_BYTES = 262_144
MAX_TEXT_BYTES = 500
MOST_DANGERS = 1_000
MOST_UNSENT = 100
"""So many samples at most are sent together; of more each stands for several steps."""


class NotExecuted(JobError, code="not_executed", status=409):
    """Somebody else executes the simulation, or nobody may: its worker has to stop."""


class SimulationContext:
    """What a simulation is given: where it is, what was saved, and whom to warn."""

    def __init__(
        self,
        context: Context,
        orders: SimulationOrders,
        *,
        total_steps: int | None = None,
        save_every_s: float = SAVE_EVERY_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.context = context
        """The job that executes it: its log, its artifacts, its attempt."""
        self.run_id = orders.run_id
        self.step = orders.step
        """The last step that was completed; 0 before the first."""
        self.total_steps = orders.total_steps if orders.total_steps is not None else total_steps
        self._saved = orders.checkpoint
        self._save_every_s = save_every_s
        self._monotonic = monotonic
        self._saved_at = monotonic()
        self._lock = threading.Lock()
        self._dangers: list[Danger] = []
        self._danger_count = orders.danger_count
        self._samples = Samples()
        self._metrics: set[str] = set()
        self._pause = orders.pause
        self._taken = ""

    def __repr__(self) -> str:
        return f"<simulation {self.run_id}, step {self.step}>"

    @property
    def resumed(self) -> bool:
        """Whether steps of it were completed before, here or elsewhere."""
        return self.step > 0

    @property
    def danger_count(self) -> int:
        """How many dangers it has warned of so far."""
        return self._danger_count

    def restored(self, type: Any = Any) -> Any:  # noqa: A002 - read as a sentence: restored(type=Town)
        """What was yielded after the last saved step; None at the beginning."""
        return decode(self._saved, type, "state") if isinstance(self._saved, msgspec.Raw) else None

    def steps(self, total: int | None = None) -> Iterator[int]:
        """The numbers of the steps that are left, from the one after the last completed."""
        self.total_steps = self.total_steps if total is None else total
        number = self.step + 1
        while self.total_steps is None or number <= self.total_steps:
            yield number
            number += 1

    def danger(self, text: str) -> None:
        """Warn of something: it is counted, and told to whoever listens, with the present step."""
        with self._lock:
            self._danger_count += 1
            if len(self._dangers) < MOST_DANGERS:
                said = cut(self.context.mask.text(str(text)), MAX_TEXT_BYTES)
                self._dangers.append(Danger(self._danger_count, self.step + 1, said))

    def metrics(self, **values: float) -> None:
        """Record numbers of the present step; they are shown as curves over all steps."""
        measured = Sample(self.step + 1, {name: _number(name, value) for name, value in values.items()})
        with self._lock:
            self._metrics |= values.keys()
            if fault := fault_of([measured], self._metrics):
                raise InvalidArguments(
                    f"These metrics cannot be recorded: {fault}.",
                    todo=f"Record up to {MOST_METRICS} different finite numbers in a simulation.",
                    facts={"step": measured.step, "fault": fault},
                )
            last = self._samples.last_step
            known = self._samples if last < measured.step else self._samples.until(last - 1)
            before = self._samples.kept[-1].values if last == measured.step else {}
            fresh = Sample(measured.step, {**before, **measured.values})
            self._samples = known.added([fresh], MOST_UNSENT)

    def log(self, text: object, level: str = "info") -> None:
        """Write a line to the log of the job that executes it."""
        self.context.log(text, level)

    # ---- the runner's half ---------------------------------------------------------------------

    def completed_step(self, state: object) -> Beat | None:
        """A step is done: what is to be said about it, if anything has to be said now."""
        self.step += 1
        self.context.progress(self.step, self.total_steps)
        now = self._monotonic()
        if now < self._saved_at + self._save_every_s and not self.context.cancelled and not self._pause:
            return None
        self._saved_at = now
        return Beat(
            step=self.step,
            total_steps=self.total_steps,
            checkpoint=self._encoded(state),
            **self._told(),
        )

    def latest(self) -> Beat:
        """A sign of life from beside the steps: how far they are, without what the next one needs."""
        return Beat(step=self.step, total_steps=self.total_steps, **self._told())

    def heard(self, orders: SimulationOrders) -> None:
        """What was answered, to either."""
        self._forget_dangers(orders.danger_count)
        self._forget_samples(orders.sampled)
        if not orders.go_on:
            self._taken = orders.reason or "it is not executed here any more"
        self._pause = self._pause or orders.pause

    def must_pause(self) -> bool:
        """Whether to stop now; raises when it is not ours any more, or the job has to stop."""
        if self._taken:
            raise not_executed(self.run_id, self._taken)
        if self._pause:
            return True
        if self.context.stop_reason is not None:
            raise TaskCancelled(self.context.stop_reason)
        return False

    def paused(self, state: object) -> Paused:
        """It stands after this step."""
        return Paused(
            step=self.step,
            total_steps=self.total_steps,
            checkpoint=self._encoded(state),
            **self._told(),
        )

    def done(self, result: object) -> Completed:
        """It has taken its last step."""
        raw = self.context.mask.raw(encode(result, "result"))
        return Completed(
            step=self.step, total_steps=self.total_steps, result=_bounded("result", raw), **self._told()
        )

    def failed(self, error: BaseException) -> Failed:
        """It cannot take the next one."""
        text = cut(self.context.mask.text(f"{type(error).__name__}: {error}"), MAX_TEXT_BYTES)
        return Failed(step=self.step, total_steps=self.total_steps, error=text, **self._told())

    def _encoded(self, state: object) -> msgspec.Raw:
        return _bounded("state", self.context.mask.raw(encode(state, "state")))

    def _told(self) -> dict[str, Any]:
        """Return what goes with every word: what was not heard of yet."""
        with self._lock:
            done = tuple(each for each in self._samples.kept if each.step <= self.step)
            return {"dangers": tuple(self._dangers), "samples": done}

    def _forget_samples(self, sampled: int) -> None:
        with self._lock:
            later = tuple(each for each in self._samples.kept if each.step > sampled)
            if len(later) < len(self._samples.kept):
                self._samples = Samples(kept=later)

    def _forget_dangers(self, counted: int) -> None:
        with self._lock:
            self._dangers = [each for each in self._dangers if each.number > counted]


def _number(name: str, value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]  # numbers of numpy as well
    except (TypeError, ValueError):
        raise InvalidArguments(
            f"The metric {name} has to be a number, and is {str(value)[:60]!r}.",
            todo="Record numbers; write text with sim.log().",
            facts={"metric": name},
        ) from None


def not_executed(run_id: str, why: str) -> NotExecuted:
    """The worker has to stop, and this is why."""
    return NotExecuted(
        f"The simulation {run_id or 'of this job'} is not executed here: {why}.",
        todo="Nothing; whoever executes it goes on after the last saved step.",
        facts={"run_id": run_id, "reason": why},
    )


def _bounded(noun: str, raw: msgspec.Raw) -> msgspec.Raw:
    size = memoryview(raw).nbytes
    if size > MAX_STATE_BYTES:
        raise TooLarge(
            f"The {noun} of the simulation has {size:,} bytes; at most {MAX_STATE_BYTES:,} are kept.",
            todo="Yield what the next step needs, and leave what is large as an artifact.",
            facts={"bytes": size, "limit": MAX_STATE_BYTES},
        )
    return raw
