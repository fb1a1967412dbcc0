"""What a sign of life costs: processor of the server and of the store, with all workers waiting for orders.

Every worker beats once in a round, twenty at a time, while every worker's long poll for orders is open:
that is how they live. What somebody who waits costs while others speak is therefore in the figure.
"""

from __future__ import annotations

import asyncio

from bench.report import Line, Section
from bench.rounds import Figure, Pace
from bench.server.house import NAME, House, house
from bench.stores.cpu import Used
from bench.workers.crew import BEAT_EVERY_S, all_beat, listening, registered

STORES = {"sqlite": "SQLite", "postgresql": "PostgreSQL", "redis": "Redis"}
AIM_SHARE = 0.25
"""Of one core: what a thousand workers may cost by doing nothing."""


def run(pace: Pace) -> Section:
    """Measure the stores one after the other."""
    number = workers_in(pace)
    lines: list[Line] = []
    missed: list[str] = []
    for kind, name in chosen(pace).items():
        with house(kind) as place, asyncio.Runner() as runner:
            served, stored = runner.run(_measure(place, number, pace.job_rounds))
        total_us = served.median + (stored.median if stored else 0.0)
        share = total_us / 1e6 * number / BEAT_EVERY_S
        lines.append(Line(f"{name}, one sign of life, the server's processor", "µs", {NAME: served}))
        if stored is not None:
            lines.append(Line("  the store's processor", "µs", {NAME: stored}))
        lines.append(
            Line(f"  {number} workers, one every {BEAT_EVERY_S:g} s", "% of a core", {NAME: _percent(share)})
        )
        if share > AIM_SHARE:
            missed.append(f"{name}: {number} workers cost {share:.0%} of a core, and should {AIM_SHARE:.0%}.")
    return Section(
        f"Workers: {number} of them give signs of life, all waiting for orders",
        NAME,
        lines=tuple(lines),
        missed=tuple(missed),
    )


def chosen(pace: Pace) -> dict[str, str]:
    """The stores that are asked for; nothing means all."""
    return {kind: name for kind, name in STORES.items() if not pace.stores or kind in pace.stores}


def workers_in(pace: Pace) -> int:
    """A thousand, or a hundred where it has to be quick."""
    return 1_000 if pace.jobs > 5_000 else 100


async def _measure(place: House, number: int, rounds: int) -> tuple[Figure, Figure | None]:
    ids = await registered(place, number)
    store = Used(place.store_pid)
    own = Used()
    served: list[float] = []
    stored: list[float] = []
    async with listening(place, ids) as hands:
        waiting = [asyncio.create_task(hand.hear()) for hand in hands]
        await all_beat(place, ids)
        for _ in range(rounds):
            store()
            before = place.cpu_s(), store() - own()
            await all_beat(place, ids)
            after = place.cpu_s(), store() - own()
            served.append((after[0] - before[0]) * 1e6 / number)
            stored.append((after[1] - before[1]) * 1e6 / number)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    return Figure(tuple(served)), Figure(tuple(stored)) if place.store_pid else None


def _percent(share: float) -> Figure:
    return Figure((100 * share,))
