"""An idle system: how soon a single job begins, what one submission costs, what a worker holds.

From the call of submit to the first line of the handler, in another process; one job at a time, with
pauses in between that keep step with nobody's polling.
"""

from __future__ import annotations

from bench.jobs.contenders import US, chosen
from bench.jobs.drains import installed
from bench.jobs.places import ground_of
from bench.jobs.turns import Idled, idled
from bench.report import Line, Section
from bench.rounds import Figure, Pace


def run(pace: Pace) -> Section:
    """Measure the stores one after the other, and the contenders on each in turns."""
    absent: list[str] = []
    lines: list[Line] = []
    missed: list[str] = []
    for store, peers in chosen(pace.stores, pace.peers).items():
        names = (US, *(peer.name for peer in installed(peers, absent)))
        turns: dict[str, list[Idled]] = {name: [] for name in names}
        with ground_of(store) as ground:
            for _ in range(pace.job_rounds):
                for name in names:
                    turns[name].append(idled(ground, name, pace.job_probes, pace.job_submissions))
        lines += lines_of(ground.name, turns)
        missed += missed_in(ground.name, lines[-4])
    return Section(
        f"Jobs: {pace.job_probes} single jobs for an idle worker",
        US,
        lines=tuple(lines),
        missed=(*absent, *missed),
    )


def lines_of(store: str, turns: dict[str, list[Idled]]) -> list[Line]:
    """Four measures, each with a figure for each turn."""

    def figures(of: str, part: float | None = None) -> dict[str, Figure]:
        return {
            name: Figure(
                tuple(turn.percentile_ms(part) if part is not None else getattr(turn, of) for turn in own)
            )
            for name, own in turns.items()
        }

    return [
        Line(f"{store}, half have begun", "ms", figures("micros", 0.5)),
        Line("  99 of 100 have begun", "ms", figures("micros", 0.99)),
        Line("  one submission", "µs", figures("submit_us")),
        Line("  an idle worker", "MB", figures("held_mb")),
    ]


def missed_in(store: str, line: Line) -> list[str]:
    """A sentence when some peer's jobs begin sooner."""
    others = {name: figure.median for name, figure in line.figures.items() if name != US}
    best = min(others, key=lambda name: others[name], default=US)
    ours = line.figures[US].median
    if best == US or ours < others[best]:
        return []
    sentence = (
        f"on {store} half of our jobs should have begun before {others[best]:.2f} ms, as with {best}, "
        f"and have after {ours:.2f} ms."
    )
    return [sentence]
