"""Drives the steps of a simulation: begin, step after step, and how it ended.

Twice, for functions and for coroutines; what is decided between two steps is in `simulation_context`, once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing, closing, suppress
from typing import Any

import msgspec

from interlock.errors import StoreUnavailable
from interlock.wire.simulations import Begin, SimulationOrders
from interlock.worker.context import Context, TaskCancelled
from interlock.worker.simulation_context import NotExecuted, SimulationContext, not_executed

StepsOf = Callable[[SimulationContext], Any]


class Ended(msgspec.Struct, frozen=True):
    """What the job that executed a simulation returns."""

    run_id: str
    status: str
    step: int


def drive(context: Context, steps_of: StepsOf, **options: Any) -> Ended:
    """Execute a simulation whose steps are plain Python."""
    speech = context.speech()
    sim = _begun(context, speech.say(Begin()).result(), options)
    with speech.living(sim.latest, sim.heard):
        try:
            # Closed however it ends: what a step has opened is closed before the job counts as ended.
            with closing(steps_of(sim)) as steps:
                result = None
                while True:
                    try:
                        state = next(steps)
                    except StopIteration as end:
                        result = end.value
                        break
                    if (beat := sim.completed_step(state)) is not None:
                        with suppress(StoreUnavailable):
                            sim.heard(speech.say(beat).result())
                    if sim.must_pause():
                        return _ended(sim, speech.say(sim.paused(state)).result())
            last = sim.done(result)
        except (TaskCancelled, NotExecuted):
            raise
        except Exception as error:
            speech.say(sim.failed(error)).result()
            raise
    return _ended(sim, speech.say(last).result())


async def drive_async(context: Context, steps_of: StepsOf, **options: Any) -> Ended:
    """Execute a simulation whose steps are awaited; its result is the last thing that it yielded."""
    speech = context.speech()
    orders = await asyncio.wrap_future(speech.say(Begin()))
    sim = _begun(context, orders, {**options, "monotonic": asyncio.get_running_loop().time})
    with speech.living(sim.latest, sim.heard):
        try:
            state = sim.restored()
            async with aclosing(steps_of(sim)) as steps:
                async for state in steps:
                    if (beat := sim.completed_step(state)) is not None:
                        with suppress(StoreUnavailable):
                            sim.heard(await asyncio.wrap_future(speech.say(beat)))
                    if sim.must_pause():
                        return _ended(sim, await asyncio.wrap_future(speech.say(sim.paused(state))))
            last = sim.done(state)
        except (TaskCancelled, NotExecuted, asyncio.CancelledError):
            raise
        except Exception as error:
            if isinstance(error.__context__, GeneratorExit):
                # It is thrown away in the middle of a step, with its loop: nobody is left to be told. Before
                # 3.13 a generator that is, still counts as running, and says so when it is closed.
                raise error.__context__ from None
            await asyncio.wrap_future(speech.say(sim.failed(error)))
            raise
    return _ended(sim, await asyncio.wrap_future(speech.say(last)))


def _begun(context: Context, orders: SimulationOrders, options: dict[str, Any]) -> SimulationContext:
    if not orders.go_on:
        raise not_executed(orders.run_id, orders.reason)
    sim = SimulationContext(context, orders, **options)
    context.progress(sim.step, sim.total_steps)
    return sim


def _ended(sim: SimulationContext, orders: SimulationOrders) -> Ended:
    if not orders.go_on:
        raise not_executed(sim.run_id, orders.reason)
    return Ended(sim.run_id, orders.status, sim.step)
