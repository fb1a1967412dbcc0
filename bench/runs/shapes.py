"""Layers of jobs, and many runs at once, each against the same jobs on their own."""

from __future__ import annotations

from bench.report import Line, Section
from bench.rounds import Pace
from bench.runs.driving import Driver, Turn, layered, race, taken, used
from bench.runs.places import kinds_of

LAYERS, WIDTH = 20, 50
RUNS, EACH = 100, 20
PARTS = "the jobs alone"


def run(pace: Pace) -> Section:
    """What a run adds to the sum of its parts."""
    shapes: dict[str, dict[str, Turn]] = {
        f"{LAYERS} layers of {WIDTH}": {"in runs": _one_run, PARTS: _layers_alone},
        f"{RUNS} runs of {EACH} at once": {"in runs": _many_runs, PARTS: _crowd_alone},
    }
    lines = []
    for shape, turns in shapes.items():
        for kind, found in race(turns, kinds_of(pace), pace).items():
            for measure, figure in (("processor", used), ("wall", taken)):
                figures = {name: figure(each) for name, each in found.items()}
                lines.append(Line(f"{shape}, {kind}, {measure} for each job", "µs", figures))
    return Section(
        "Runs: what they add to the jobs that they are made of",
        PARTS,
        lines=tuple(lines),
        notes=("One process claims and completes 200 jobs at a time, and looks after the runs in between.",),
    )


async def _one_run(driver: Driver) -> int:
    return await driver.runs([layered(LAYERS, WIDTH)])


async def _layers_alone(driver: Driver) -> int:
    return await driver.alone([WIDTH] * LAYERS)


async def _many_runs(driver: Driver) -> int:
    return await driver.runs([layered(4, EACH // 4)] * RUNS)


async def _crowd_alone(driver: Driver) -> int:
    return await driver.alone([RUNS * EACH // 4] * 4)
