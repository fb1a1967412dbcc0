"""Lease, ack and complete over HTTP: a request for each, and in batches. No-op work, full journal."""

from __future__ import annotations

import asyncio
from time import perf_counter

from bench.report import Line as Row
from bench.report import Section
from bench.rounds import Figure, Pace
from bench.server.house import NAME, House, door, house
from bench.server.talking import Line
from interlock.wire.jobs import JobSpec

CLIENTS = 50
BATCHERS = 4
BATCH = 200
SINGLE_AIM, BATCH_AIM = 1_000, 3_000
SINGLE, BATCHES = "lease → ack → complete, one request each", f"lease and complete, {BATCH} at once"
DONE = {"outcome": {"outcome": "succeeded", "result": None}}


def run(pace: Pace) -> Section:
    """Measure one and the other, round by round."""
    jobs = max(1_000, pace.jobs // 10)
    single: list[float] = []
    batches: list[float] = []
    spent: list[float] = []
    with house() as place, asyncio.Runner() as runner:
        for _ in range(pace.job_rounds + 1):
            before_s = place.cpu_s()
            single.append(runner.run(_rate(place, jobs, CLIENTS, _single)))
            spent.append((place.cpu_s() - before_s) * 1e6 / jobs)
            batches.append(runner.run(_rate(place, 4 * jobs, BATCHERS, _batches)))
    figures = {SINGLE: Figure(tuple(single[1:])), BATCHES: Figure(tuple(batches[1:]))}
    aims = {SINGLE: SINGLE_AIM, BATCHES: BATCH_AIM}
    return Section(
        f"Server: runners over HTTP, one process, PostgreSQL, {CLIENTS} clients ({BATCHERS} in batches)",
        NAME,
        lines=(
            *(Row(name, "jobs/s", {NAME: figure}) for name, figure in figures.items()),
            Row("the server's processor for each single cycle", "µs", {NAME: Figure(tuple(spent[1:]))}),
        ),
        notes=("The clients run on the same machine, and take their share of it.",),
        missed=tuple(
            f"{name}: {figure.median:,.0f} jobs/s, and should be {aims[name]:,}."
            for name, figure in figures.items()
            if figure.median < aims[name]
        ),
    )


async def _rate(place: House, jobs: int, clients: int, work: object) -> float:
    async with door(place) as il:
        await il.submit_many([JobSpec(task="noop")] * jobs)
    lines = [await Line.to(place.address) for _ in range(clients)]
    left = Left(jobs)
    began = perf_counter()
    await asyncio.gather(*(work(line, f"r{number}", left) for number, line in enumerate(lines)))  # type: ignore[operator]
    taken_s = perf_counter() - began
    for line in lines:
        line.close()
    return jobs / taken_s


class Left:
    """How many jobs nobody has done yet."""

    def __init__(self, number: int) -> None:
        self.number = number


async def _single(line: Line, name: str, left: Left) -> None:
    request = {"runner_id": name, "acknowledge": False}
    while left.number > 0:
        granted = await line.post(b"/api/runner/lease", request)
        for grant in granted["grants"]:
            left.number -= 1
            message = {"token": grant["token"], "runner_id": name}
            await line.post(b"/api/runner/ack", {**message, "sequence": 1})
            await line.post(b"/api/runner/complete", {**message, "sequence": 2, **DONE})


async def _batches(line: Line, name: str, left: Left) -> None:
    request = {"runner_id": name, "limit": BATCH}
    while left.number > 0:
        granted = await line.post(b"/api/runner/lease", request)
        left.number -= len(granted["grants"])
        messages = [
            {"token": grant["token"], "runner_id": name, "sequence": 1, **DONE} for grant in granted["grants"]
        ]
        if messages:
            await line.post(b"/api/runner/complete", {"messages": messages})
