"""The same number of jobs in many small runs and in one large one: a job costs the same in either."""

from __future__ import annotations

from functools import partial

from bench.report import Line, Section
from bench.rounds import Pace
from bench.runs.driving import Driver, layered, race, used
from bench.runs.places import kinds_of
from interlock.wire.runs import Plan

JOBS, SMALL = 10_000, 10
AIM = 1.25


def run(pace: Pace) -> Section:
    """Ten thousand jobs in runs of ten, and in one run."""
    small, large = f"runs of {SMALL}", f"one run of {JOBS:,}"
    turns = {small: partial(_in_runs_of, JOBS, SMALL), large: partial(_in_runs_of, JOBS, JOBS)}
    measured = race(turns, kinds_of(pace), pace)
    lines = [
        Line(f"{kind}, processor for each job", "µs", {name: used(each) for name, each in found.items()})
        for kind, found in measured.items()
    ]
    return Section(
        f"Runs: {JOBS:,} jobs, of which half need another, in runs of {SMALL} and in one",
        small,
        lines=tuple(lines),
        missed=tuple(
            f"{line.measure}: in one run {line.ratio(large, small):.2f} times as much; at most {AIM:g}."
            for line in lines
            if line.ratio(large, small) > AIM
        ),
    )


async def _in_runs_of(jobs: int, size: int, driver: Driver) -> int:
    plan: Plan = layered(2, size // 2, all_of_them=False)
    return await driver.runs([plan] * (jobs // size))
