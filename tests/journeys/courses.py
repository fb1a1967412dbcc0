"""What the simulations of the journeys do: the same steps with the same end, however they are held up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Generator

from tests.journeys.errands import LOOK_S, is_open, note

from interlock import SimulationContext, simulation

STEPS = 30


def following(number: int) -> int:
    """The next number of a sequence that looks like chance."""
    return (1_103_515_245 * number + 12_345) % 2**31


def answer(seed: int, steps: int = STEPS) -> int:
    """What an undisturbed run comes to."""
    for _ in range(steps):
        seed = following(seed)
    return seed


def wait_for(gate: str) -> None:
    """In a thread of its own, so that it may be waited for."""
    while not is_open(gate):
        time.sleep(LOOK_S)


@simulation(total_steps=STEPS, save_every_s=0)
def counting(sim: SimulationContext, seed: int, hold_at: int = 0) -> Generator[int, None, dict[str, int]]:
    """Number after number; held up before one of them until the test says so."""
    number = sim.restored(type=int) or seed
    note(f"begins {sim.run_id} after {sim.step}")
    for step in sim.steps():
        if step == hold_at:
            note(f"held {sim.run_id}")
            wait_for(f"{sim.run_id}.{step}")
        number = following(number)
        if number % 7 == 0:
            sim.danger(f"{number} is divisible by seven")
        yield number
    return {"number": number}


@simulation(total_steps=STEPS)
def stepping(state: int | None, seed: int) -> int:
    """The same as a step function."""
    return following(seed if state is None else state)


@simulation(save_every_s=0)
async def waiting(sim: SimulationContext, seed: int, hold_at: int = 0) -> AsyncIterator[int]:
    """The same, awaited; its steps are as many as it says itself."""
    number = sim.restored(type=int) or seed
    for step in sim.steps(STEPS):
        if step == hold_at:
            note(f"held {sim.run_id}")
            while not is_open(f"{sim.run_id}.{step}"):
                await asyncio.sleep(LOOK_S)
        number = following(number)
        yield number


@simulation(total_steps=5)
def breaking(state: int | None) -> int:
    """Fails at its third step."""
    if state == 2:
        raise ZeroDivisionError("nothing is left to divide by")
    return (state or 0) + 1
