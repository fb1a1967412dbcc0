"""The task handlers of a world: they wait, save, fail, have children, ignore cancellation, and take steps."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, cast

import msgspec

from interlock.errors import WaitTimeout
from interlock.wire.jobs import IfFails, JobSpec
from interlock.worker.context import Context
from interlock.worker.postponement import Snooze
from interlock.worker.simulations import SimulationContext, simulation
from interlock.worker.tasks import Registry
from interlock_verification.worlds.claims.jobs import BusyWorker, StartedHandler
from interlock_verification.worlds.claims.simulations import ChainState
from interlock_verification.worlds.judge import Judge
from interlock_verification.worlds.network import ActorProcess, ClaimWatcher
from interlock_verification.worlds.scheduler import WorldLoop
from interlock_verification.worlds.worlds import BRANCH, BRIEF, POSTAL, SimulationKind

DEAF_S = 120.0
WAIT_S = 120.0
"""Time for which a handler waits for a signal."""
SNOOZE_S = 90.0
_BELOW = 10**10
"""First number for children: sixteen numbers for those of each parent."""


class FlakyError(Exception):
    """Raised by a handler that succeeds the next time."""


class TaskHandlers:
    """The handlers, and the attempts that execute them."""

    def __init__(
        self, watcher: ClaimWatcher, judge: Judge, slots: int, simulations: Sequence[SimulationKind] = ()
    ) -> None:
        self._watcher = watcher
        self._judge = judge
        self._slots = slots
        self._busy: Counter[str] = Counter()
        self._at: dict[tuple[str, int], list[tuple[ActorProcess, str, float]]] = {}
        """The executing attempts of each shard: process, attempt, and start time."""
        self.registry = Registry()
        self.registry.task(name="work")(self._work_of())
        self.registry.task(name=BRIEF)(self._brief_of())
        self.registry.task(name=BRANCH)(self._branch_of())
        self.registry.task(name=POSTAL)(self._postal_of())
        for kind in simulations:
            model = self._model_of()
            simulation(name=kind.name, save_every_s=kind.save_every_s, registry=self.registry)(model)

    def _work_of(self) -> Callable[..., Coroutine[Any, Any, int]]:
        handlers = self

        async def work(number: int, seconds: float, ends: list[str], ctx: Context) -> int:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, WorldLoop)
            end = ends[(ctx.attempt - 1) % len(ends)]
            if end == "deaf":  # it may be abandoned, which frees its slot
                await _deaf()
                return number
            handlers.enter(loop.owner, ctx)
            try:
                await handlers.do(seconds, end, ctx)
            finally:
                handlers.leave(loop.owner, ctx)
            return number

        return work

    def _brief_of(self) -> Callable[..., Coroutine[Any, Any, int]]:
        handlers = self

        async def brief(number: int, seconds: float, ends: list[str], ctx: Context) -> int:  # noqa: ARG001
            """Return without waiting.

            So a worker executes several of these as a cohort.
            """
            loop = asyncio.get_running_loop()
            assert isinstance(loop, WorldLoop)
            handlers.enter(loop.owner, ctx)
            try:
                end = ends[(ctx.attempt - 1) % len(ends)]
                _raise_if_bad(end)
                if end == "said":
                    ctx.log("done")
            finally:
                handlers.leave(loop.owner, ctx)
            return number

        return brief

    def _postal_of(self) -> Callable[..., Coroutine[Any, Any, int]]:
        handlers = self

        async def postal(number: int, seconds: float, ends: list[str], signals: int, ctx: Context) -> int:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, WorldLoop)
            handlers.enter(loop.owner, ctx)
            try:
                for wait in range(1, signals + 1):
                    await asyncio.sleep(seconds / 8)
                    handlers._judge.signals.received(ctx.job_id, wait, await _answer(ctx))
                _raise_if_bad(ends[(ctx.attempt - 1) % len(ends)])
            finally:
                handlers.leave(loop.owner, ctx)
            return number

        return postal

    def _branch_of(self) -> Callable[..., Coroutine[Any, Any, int]]:
        handlers = self

        async def branch(
            number: int,
            seconds: float,
            ends: list[str],
            breadth: int,
            levels: int,
            if_fails: str,
            ctx: Context,
        ) -> int:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, WorldLoop)
            handlers.enter(loop.owner, ctx)
            try:
                await handlers.have_done(number, seconds, ends, (breadth, levels, if_fails), ctx)
            finally:
                handlers.leave(loop.owner, ctx)
            return number

        return branch

    async def have_done(
        self,
        number: int,
        seconds: float,
        ends: list[str],
        shape: tuple[int, int, str],
        ctx: Context,
    ) -> None:
        """Submit children, work, and wait for them.

        Some more are submitted after each wait.
        """
        breadth = shape[0]
        first = [_child(number, each, seconds, ends, shape) for each in range(breadth - 1)]
        submitted = await ctx.submit_many(first, child_name="first")
        await asyncio.sleep(seconds / 4)
        last = _child(number, breadth - 1, seconds, ends, shape)
        submitted += await ctx.submit_many([last], child_name="last")
        children = await ctx.wait_children()
        self._judge.trees.found(ctx.job_id, submitted, {child.id: child.ended for child in children})

    def _model_of(self) -> Callable[..., AsyncIterator[ChainState]]:
        handlers = self

        async def model(
            sim: SimulationContext, number: int, steps: int, seconds: float, fails_at: int
        ) -> AsyncIterator[ChainState]:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, WorldLoop)
            handlers.enter(loop.owner, sim.context)
            try:
                restored = sim.restored(type=ChainState)
                handlers._judge.simulations.goes_on(sim.run_id, sim.step, restored, number)
                state = restored or ChainState.first(number)
                for step in sim.steps(steps):
                    await asyncio.sleep(seconds)
                    if step == fails_at:
                        raise ValueError("this step cannot be taken")
                    state = state.after()
                    yield state
            finally:
                handlers.leave(loop.owner, sim.context)

        return model

    def enter(self, process: ActorProcess, ctx: Context) -> None:
        """Record the start of a handler."""
        name = process.loop.name
        self._busy[name] += 1
        self._watcher.check(BusyWorker(name, self._busy[name], self._slots), ctx.job_id)
        others = self._at.setdefault((ctx.job_id, ctx.shard), [])
        running = [
            f"{attempt} at {other.loop.name}"
            for other, attempt, since in others
            if other.alive
            and not other.was_held_up_since(since)
            and self._judge.was_lost(ctx.job_id, attempt)
        ]
        self._watcher.check(StartedHandler(name, f"{ctx.shard}.{ctx.attempt}", running), ctx.job_id)
        others.append((process, f"{ctx.shard}.{ctx.attempt}", process.network.schedule.now))

    def leave(self, process: ActorProcess, ctx: Context) -> None:
        """Record the end of a handler."""
        name, mine = process.loop.name, f"{ctx.shard}.{ctx.attempt}"
        self._busy[name] -= 1
        if not self._busy[name]:
            del self._busy[name]
        others = [one for one in self._at.pop((ctx.job_id, ctx.shard), []) if one[:2] != (process, mine)]
        if others:
            self._at[ctx.job_id, ctx.shard] = others

    async def do(self, seconds: float, end: str, ctx: Context) -> None:
        """Work for a while, report progress, and end as drawn."""
        done = ctx.restored(float) or 0.0
        if seconds > 30.0:
            half = max(0.0, seconds / 2 - done)
            await asyncio.sleep(half)
            ctx.progress(done + half, seconds)
            ctx.checkpoint(done + half)
            done += half
        await asyncio.sleep(max(0.0, seconds - done))
        _raise_if_bad(end)
        if end == "hang":
            await ctx.wait_cancelled()
        else:
            ctx.log("done")


def _raise_if_bad(end: str) -> None:
    match end:
        case "user":
            raise ValueError("the input cannot be processed")
        case "infra":
            raise ConnectionError("connection reset by peer")
        case "flaky":
            raise FlakyError("not this time")
        case "snooze":
            raise Snooze(SNOOZE_S)


async def _answer(ctx: Context) -> int | None:
    """Return the number of the next signal, or None if it is late."""
    try:
        return await ctx.wait_for("go", timeout=WAIT_S, type=int)
    except WaitTimeout:
        return None


async def _deaf() -> None:
    """Ignore cancellation for a while."""
    loop = asyncio.get_running_loop()
    until = loop.time() + DEAF_S
    while loop.time() < until:
        try:
            await asyncio.sleep(until - loop.time())
        except asyncio.CancelledError:
            continue


def _child(number: int, place: int, seconds: float, ends: list[str], shape: tuple[int, int, str]) -> JobSpec:
    """Return a child of the numbered job: a branch or a leaf."""
    breadth, levels, if_fails = shape
    below = (0 if number > _BELOW else _BELOW) + 16 * number + place
    turned = ends[place % len(ends) :] + ends[: place % len(ends)]
    arguments: dict[str, Any] = {"number": below, "seconds": seconds / 2, "ends": turned}
    if levels > 1:
        arguments |= {"breadth": breadth, "levels": levels - 1, "if_fails": if_fails}
    return JobSpec(
        task=BRANCH if levels > 1 else "work",
        input=msgspec.Raw(msgspec.json.encode(arguments)),
        if_fails=cast(IfFails, if_fails),
    )
