"""Pages of jobs by filters, as somebody looks at them who has a great many."""

from __future__ import annotations

import asyncio
from time import perf_counter
from urllib.parse import quote

from bench.report import Line as Row
from bench.report import Section
from bench.rounds import Figure, Pace
from bench.server.house import NAME, House, door, house
from bench.server.talking import Line
from interlock.wire.jobs import JobSpec

STORED = 50_000
AIM_MS, HELD_FROM = 50.0, 1_000_000
ASKED = 200
FILTERS = (
    "",
    "state:pending",
    "state:completed queue:ci",
    "queue:mail since:1h",
    "label:gpu",
    "task:shop.task7 state:pending",
)


def run(pace: Pace) -> Section:
    """Fill the store, then ask for each kind of page again and again."""
    stored = pace.job_crowd or STORED
    with house() as place, asyncio.Runner() as runner:
        runner.run(_fill(place, stored))
        taken = {text: runner.run(_ask(place, text)) for text in FILTERS}
    figures = {text or "(everything)": Figure((_p99(times),)) for text, times in taken.items()}
    return Section(
        f"Server: p99 of GET /api/jobs?q=… with {stored:,} jobs stored, {ASKED} times each",
        NAME,
        lines=tuple(Row(text, "ms", {NAME: figure}) for text, figure in figures.items()),
        missed=tuple(
            f"{text}: {figure.median:,.0f} ms, and should be {AIM_MS:g}."
            for text, figure in figures.items()
            if figure.median > AIM_MS and stored >= HELD_FROM
        ),
    )


async def _fill(place: House, stored: int) -> None:
    """Jobs of ten tasks in three queues, some with a label."""
    async with door(place) as il:
        for start in range(0, stored, 10_000):
            await il.submit_many([_spec(number) for number in range(start, min(start + 10_000, stored))])


def _spec(number: int) -> JobSpec:
    return JobSpec(
        task=f"shop.task{number % 10}",
        queue=("ci", "mail", "default")[number % 3],
        labels=("gpu",) if number % 50 == 0 else (),
    )


async def _ask(place: House, text: str) -> list[float]:
    line = await Line.to(place.address)
    path = f"/api/jobs?limit=50&q={quote(text)}".encode()
    times = []
    for _ in range(ASKED):
        began = perf_counter()
        await line.ask(b"GET", path)
        times.append((perf_counter() - began) * 1e3)
    line.close()
    return times


def _p99(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.99)]
