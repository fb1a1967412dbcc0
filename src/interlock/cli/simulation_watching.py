"""What `interlock simulation watch` does: follow one simulation until it stands, and show how far it is."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, aclosing, nullcontext
from typing import Protocol

import typer

from interlock.cli import printing
from interlock.cli.answers import print_line
from interlock.cli.connecting import ask
from interlock.cli.following import CANCELED, COMPLETED, FAILED, NOT_IN_TIME, called_or_time
from interlock.cli.simulation_looking import steps_of, told_status, whole_id
from interlock.cli.times import lasting
from interlock.cli.watchers import Trouble
from interlock.client_simulations import stands
from interlock.errors import StoreUnavailable
from interlock.lifecycles.simulation import SimulationState
from interlock.remote.interfaces import Reach
from interlock.systems.orchestrator.waiters import waker
from interlock.wire.simulations import SimulationView

LOOK_EVERY_S = 0.5
"""Steps are no news of the journal, so nobody calls for them."""
LEAST_PAUSE_S = 0.1
SWEEP_EVERY_S = 1.0
MEASURED = 20
"""Over how many looks the rate is measured."""
_CODES = {
    SimulationState.COMPLETED: COMPLETED,
    SimulationState.FAILED: FAILED,
    SimulationState.CANCELLED: CANCELED,
}


class Pace:
    """How fast a simulation goes, and when it will be done if it goes on like this."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque(maxlen=MEASURED)

    def note(self, at_s: float, step: int) -> None:
        """It has come to this step."""
        if self._seen and step < self._seen[-1][1]:
            self._seen.clear()
        self._seen.append((at_s, step))

    @property
    def rate(self) -> float | None:
        """Steps in a second; None where that is not known."""
        if len(self._seen) < 2:
            return None
        (began, first), (last, step) = self._seen[0], self._seen[-1]
        return (step - first) / (last - began) if last > began and step > first else None

    def left_s(self, view: SimulationView) -> float | None:
        """How many seconds are left; None where that is not known."""
        if self.rate is None or not view.total_steps or view.status != SimulationState.RUNNING:
            return None
        return max(view.total_steps - view.current_step, 0) / self.rate

    def told(self, view: SimulationView) -> str:
        """Both, for people."""
        rate = f"{self.rate:.1f}/s" if self.rate is not None else ""
        left = self.left_s(view)
        return " ".join(filter(None, (rate, f"{lasting(left)} left" if left is not None else "")))


class Screen(Protocol):
    """Where news is shown."""

    def show(self, view: SimulationView, pace: Pace) -> None:
        """Show how it is now."""
        ...


def watch(store: str | None, text: str, timeout_s: float | None, *, as_json: bool) -> int:
    """Follow a simulation; the answer is the exit code."""

    async def work(port: Reach) -> int:
        run_id = await whole_id(port.here.simulations, text)
        return await follow(port, run_id, timeout_s, as_json=as_json)

    try:
        return ask(store, work)
    except KeyboardInterrupt:
        typer.echo("Stopped watching; the simulation goes on.", err=True)
        raise


async def follow(port: Reach, run_id: str, timeout_s: float | None, *, as_json: bool) -> int:
    """Show what happens to a simulation until it stands; the answer is the exit code."""
    last: SimulationView | None = None
    pace, loop = Pace(), asyncio.get_running_loop()
    with _screen(as_json=as_json) as screen:
        try:
            async with asyncio.timeout(timeout_s), aclosing(looks_at(port, run_id)) as looks:
                async for view in looks:
                    pace.note(loop.time(), view.current_step)
                    screen.show(view, pace)
                    last = view
        except TimeoutError:
            typer.echo(f"Not ended in time: {run_id}.", err=True)
            return NOT_IN_TIME
    return exit_code(last)


def exit_code(view: SimulationView | None) -> int:
    """What the end of a simulation means to a shell."""
    return NOT_IN_TIME if view is None else _CODES.get(SimulationState(view.status), NOT_IN_TIME)


async def looks_at(port: Reach, run_id: str) -> AsyncGenerator[SimulationView, None]:
    """The simulation whenever it may have changed, until it stands; who is away is waited for."""
    called, trouble = asyncio.Event(), Trouble()
    stop = port.here.store.subscribe(waker(called))
    loop, swept_at = asyncio.get_running_loop(), float("-inf")
    try:
        while True:
            called.clear()
            try:
                view = await port.here.simulations.get(run_id)
                yield view
                if stands(view):
                    return
                if loop.time() - swept_at >= SWEEP_EVERY_S:
                    await port.recover()
                    swept_at = loop.time()
            except StoreUnavailable as error:
                trouble(error)
            await called_or_time(called, LOOK_EVERY_S)
            await asyncio.sleep(LEAST_PAUSE_S)
    finally:
        stop()


def _screen(*, as_json: bool) -> AbstractContextManager[Screen]:
    if as_json:
        return nullcontext(JsonLines())
    if not printing.on_terminal():
        return nullcontext(Lines())
    from interlock.cli.simulation_live import LiveBar  # a pipe need not wait for rich

    return LiveBar()


class Lines:
    """A line for each change, for a pipe."""

    def __init__(self) -> None:
        self._before: tuple[str, ...] = ()

    def show(self, view: SimulationView, pace: Pace) -> None:
        """One line, there at once."""
        now = (view.run_id, told_status(view), steps_of(view), str(view.danger_count))
        if now != self._before:
            self._before = now
            printing.print_row((*now, pace.told(view), view.error or view.trouble))


class JsonLines:
    """A line of JSON for each change."""

    def __init__(self) -> None:
        self._before: SimulationView | None = None

    def show(self, view: SimulationView, pace: Pace) -> None:
        """One line, there at once."""
        if view != self._before:
            self._before = view
            print_line({"simulation": view, "rate": pace.rate, "left_s": pace.left_s(view)})
