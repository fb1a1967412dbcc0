"""Our own queue with a million jobs in it: it shall be drained as fast as a short one, in as much memory.

Only with `--long`. The short queue is drained several times before the long one and after it.
"""

from __future__ import annotations

from bench.jobs.contenders import US, chosen
from bench.jobs.places import Ground, ground_of
from bench.jobs.turns import Drained, drained
from bench.report import Line, Section
from bench.rounds import Figure, Pace

SHORT = 10_000
SHORT_TURNS = 3
RATE_AIM, MEMORY_AIM = 0.9, 1.1
"""How much of the short queue's speed has to be left, and how many times as much memory may be held."""

_TITLE = "Jobs: a long queue beside a short one"


def run(pace: Pace) -> Section:
    """Measure the stores one after the other."""
    short = f"{SHORT:,} queued"
    if pace.job_crowd is None:
        return Section(_TITLE, short, lines=(), notes=("Only with --long.",))
    lines: list[Line] = []
    missed: list[str] = []
    for store in chosen(pace.stores, ()):
        with ground_of(store) as ground:
            few, many = _turns(ground, pace.job_crowd)
            drains, held = lines_of(ground.name, few, many)
            lines += [drains, held]
            missed += missed_in(ground.name, drains, held)
    return Section(_TITLE, short, lines=tuple(lines), missed=tuple(missed))


def _turns(ground: Ground, crowd: int) -> tuple[list[Drained], Drained]:
    few = [drained(ground, US, SHORT, 1) for _ in range(SHORT_TURNS)]
    many = drained(ground, US, crowd, 1)
    return few + [drained(ground, US, SHORT, 1) for _ in range(SHORT_TURNS)], many


def lines_of(store: str, few: list[Drained], many: Drained) -> tuple[Line, Line]:
    """What a job costs in either queue, and what the worker held early and late in the long one."""
    short, long = f"{SHORT:,} queued", f"{many.jobs:,} queued"
    costs = {
        short: Figure(tuple(turn.drain_us for turn in few)),
        long: Figure((many.drain_us,) * len(few)),
    }
    held = {short: Figure((many.held_mb[0],)), long: Figure((many.held_mb[-1],))}
    return (
        Line(store, "µs a job", costs),
        Line("  worker after a fifth of the long queue, and after all of it", "MB", held),
    )


def missed_in(store: str, drains: Line, held: Line) -> list[str]:
    """Each aim that was not reached, as a sentence."""
    short, long = drains.figures
    speed, growth = 1 / drains.ratio(long, short), held.ratio(long, short)
    missed = []
    if speed < RATE_AIM:
        missed.append(
            f"on {store} a long queue should be drained at {RATE_AIM:g} of the short one's speed, "
            f"and has {speed:.2f}."
        )
    if growth > MEMORY_AIM:
        missed.append(
            f"on {store} the worker should hold at most {MEMORY_AIM:g} times as much at the end, "
            f"and holds {growth:.2f} times as much."
        )
    return missed
