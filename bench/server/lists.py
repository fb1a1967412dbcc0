"""Pages of jobs by filters, as somebody looks at them who has a great many."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import NamedTuple
from urllib.parse import quote

from bench.report import Line as Row
from bench.report import Section
from bench.rounds import Figure, Pace
from bench.server.house import NAME, House, door, house
from bench.server.talking import Line
from bench.stores.cpu import Used
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


class Asked(NamedTuple):
    """How long pages of one filter took, and what each cost the processors."""

    times_ms: list[float]
    cpu_ms: float

    def late_ms(self, share: float) -> Figure:
        """Within so many milliseconds this share of them was answered."""
        return Figure((sorted(self.times_ms)[int(len(self.times_ms) * share)],))


def run(pace: Pace) -> Section:
    """Fill the store, then ask for each kind of page again and again."""
    stored = pace.job_crowd or STORED
    with house() as place, asyncio.Runner() as runner:
        runner.run(_fill(place, stored))
        timings = {text or "(everything)": runner.run(_ask(place, text)) for text in FILTERS}
    return Section(
        f"Server: GET /api/jobs?q=… with {stored:,} jobs stored, {ASKED} times each",
        NAME,
        lines=(
            *(Row(f"{text}, p50", "ms", {NAME: each.late_ms(0.5)}) for text, each in timings.items()),
            *(Row(f"{text}, p99", "ms", {NAME: each.late_ms(0.99)}) for text, each in timings.items()),
            *(
                Row(f"{text}, processors", "ms", {NAME: Figure((each.cpu_ms,))})
                for text, each in timings.items()
            ),
        ),
        notes=(
            "Processors are the server's and the database's: what other work on the machine hardly changes.",
        ),
        missed=tuple(
            f"{text}: {each.late_ms(0.99).median:,.0f} ms, and should be {AIM_MS:g}."
            for text, each in timings.items()
            if each.late_ms(0.99).median > AIM_MS and stored >= HELD_FROM
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


async def _ask(place: House, text: str) -> Asked:
    line = await Line.to(place.address)
    path = f"/api/jobs?limit=50&q={quote(text)}".encode()
    await line.ask(b"GET", path)
    database, own = Used(place.store_pid), Used()
    database()
    before_s = place.cpu_s() + database() - own()
    times = []
    for _ in range(ASKED):
        began = perf_counter()
        await line.ask(b"GET", path)
        times.append((perf_counter() - began) * 1e3)
    used_s = place.cpu_s() + database() - own() - before_s
    line.close()
    return Asked(times, used_s * 1e3 / ASKED)
