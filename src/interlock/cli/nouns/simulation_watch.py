"""Command `simulation watch`, and `simulation start --wait`: follow a simulation until it stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from interlock.cli import watch
from interlock.cli.nouns.simulation_start import CONTINUES
from interlock.cli.nouns.simulation_views import StepRate, status_text, steps_of, whole_id
from interlock.cli.watch import CANCELED, COMPLETED, FAILED, NOT_IN_TIME
from interlock.client_resources import is_settled
from interlock.lifecycles.simulation import SimulationState
from interlock.remote.service_connection import ServiceConnection
from interlock.wire.simulations import SimulationView

T = TypeVar("T")
LOOK_EVERY_S = 0.5
"""Polling interval: steps are not in the journal, so they cause no notification."""
_CODES = {
    SimulationState.COMPLETED: COMPLETED,
    SimulationState.FAILED: FAILED,
    SimulationState.CANCELLED: CANCELED,
}


def watch_simulation(store: str | None, text: str, timeout_s: float | None, *, as_json: bool) -> int:
    """Follow a simulation; return the exit code."""

    async def work(port: ServiceConnection) -> int:
        return await follow(port, await whole_id(port, text), timeout_s, as_json=as_json)

    return watch.until_interrupted(store, work, CONTINUES)


async def follow(port: ServiceConnection, run_id: str, timeout_s: float | None, *, as_json: bool) -> int:
    """Show the changes of a simulation until it stops; return the exit code."""
    pace, loop = StepRate(), asyncio.get_running_loop()
    with _screen(as_json=as_json) as screen:

        async def show(view: SimulationView) -> None:
            pace.note(loop.time(), view.current_step)
            await screen.show(view, pace)

        late = f"Not ended in time: {run_id}."
        return await watch.follow_one(looks_at(port, run_id), show, exit_code, timeout_s, late)


def looks_at(port: ServiceConnection, run_id: str) -> AsyncGenerator[SimulationView, None]:
    """Yield the simulation whenever it may have changed, until it stops."""
    return watch.looks(port, lambda: port.services.simulations.get(run_id), is_settled, every_s=LOOK_EVERY_S)


def exit_code(view: SimulationView) -> int:
    """Return the exit code for the state of a simulation."""
    return _CODES.get(SimulationState(view.status), NOT_IN_TIME)


def _screen(*, as_json: bool) -> AbstractContextManager[watch.Screen[[SimulationView, StepRate]]]:
    def live() -> AbstractContextManager[watch.Screen[[SimulationView, StepRate]]]:
        from interlock.cli.live import LiveBar  # a pipe needs no rich

        return LiveBar()

    rows, structs = _when_changed(_shown, _row), _when_changed(lambda view: view, _struct)
    return watch.screen(as_json=as_json, structs=structs, rows=rows, live=live)


def _when_changed(
    key: Callable[[SimulationView], object], line: Callable[[SimulationView, StepRate], T]
) -> Callable[[SimulationView, StepRate], Iterator[T]]:
    """Return a function that yields a line whenever the key has changed."""
    before: object = None

    def lines(view: SimulationView, pace: StepRate) -> Iterator[T]:
        nonlocal before
        if (now := key(view)) != before:
            before = now
            yield line(view, pace)

    return lines


def _shown(view: SimulationView) -> tuple[str, ...]:
    return view.run_id, status_text(view), steps_of(view), str(view.danger_count)


def _row(view: SimulationView, pace: StepRate) -> Sequence[str]:
    return *_shown(view), pace.text(view), view.error or view.trouble


def _struct(view: SimulationView, pace: StepRate) -> object:
    return {"simulation": view, "rate": pace.rate, "left_s": pace.left_s(view)}
