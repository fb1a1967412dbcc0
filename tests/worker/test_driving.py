"""Driving the steps of a simulation: what a step has opened is closed before its job counts as ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from datetime import UTC, datetime

import msgspec
import pytest

from interlock.errors import NotExecuted
from interlock.wire.runner import Grant
from interlock.wire.simulations import AnySimulationMessage, Begin, SimulationOrders
from interlock.worker.context import Context, HandlerServices
from interlock.worker.simulations import (
    SimulationContext,
    drive,
    drive_async,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GRANT = Grant(
    token="j_1.1.1.0",
    job_id="j_1",
    task="walk",
    input=msgspec.Raw(b"{}"),
    fence=1,
    granted_at=NOW,
    expires_at=NOW,
    ttl_s=120.0,
    heartbeat_every_s=20.0,
    timeout_s=60.0,
)


class GivenToAnother:
    """A simulations that hears after the first step that the simulation was given to somebody else."""

    def send(self, _: str, word: AnySimulationMessage, __: float) -> Future[SimulationOrders]:
        answer = Future[SimulationOrders]()
        answer.set_result(SimulationOrders(run_id="s_1", status="running", go_on=isinstance(word, Begin)))
        return answer

    def living(self, *_: object) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


async def test_a_simulation_that_is_taken_away_is_closed_before_its_job_ends() -> None:
    """A world found it: the generator was left to the garbage collector, and so was what it had open."""
    events: list[str] = []

    async def steps(sim: SimulationContext) -> AsyncIterator[int]:
        try:
            for step in sim.steps(9):
                yield step
        finally:
            events.append("closed")

    context = Context(GRANT, now=lambda: NOW, services=HandlerServices(simulations=GivenToAnother()))
    with pytest.raises(NotExecuted):
        await drive_async(context, steps, save_every_s=0.0)
    assert events == ["closed"]


async def test_a_simulation_that_is_closed_in_the_middle_of_a_step_reports_no_failure() -> None:
    """A world found it: it took its own end for a failure of the step, and waited once more to report it."""
    messages: list[object] = []
    begun: list[int] = []

    class Listening(GivenToAnother):
        def send(self, token: str, word: AnySimulationMessage, patience_s: float) -> Future[SimulationOrders]:
            messages.append(word)
            return super().send(token, word, patience_s)

    async def steps(sim: SimulationContext) -> AsyncIterator[int]:
        for step in sim.steps(9):
            begun.append(step)
            await asyncio.Event().wait()
            yield step

    coroutine = drive_async(
        Context(GRANT, now=lambda: NOW, services=HandlerServices(simulations=Listening())),
        steps,
        save_every_s=0.0,
    )
    waits_for = coroutine.send(None)
    while not begun:  # since Python 3.14 an answer that is there already is not waited for
        while not waits_for.done():
            await asyncio.sleep(0)
        waits_for = coroutine.send(None)
    coroutine.close()
    assert [type(word) for word in messages] == [Begin]


def test_a_synchronous_simulation_that_is_taken_away_is_closed_before_its_job_ends() -> None:
    events: list[str] = []

    def steps(sim: SimulationContext) -> Iterator[int]:
        try:
            yield from sim.steps(9)
        finally:
            events.append("closed")

    context = Context(GRANT, now=lambda: NOW, services=HandlerServices(simulations=GivenToAnother()))
    with pytest.raises(NotExecuted):
        drive(context, steps, save_every_s=0.0)
    assert events == ["closed"]
