"""Submit no-op jobs in bulk and drain them, with one worker process and with two.

Each peer is followed by Interlock, so that what is compared ran side by side; Interlock always has the
full number of jobs, also beside a slow peer that has fewer.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from bench.jobs.contenders import US, Peer, chosen
from bench.jobs.places import Ground, ground_of
from bench.jobs.turns import Drained, drained
from bench.jobs.venvs import NotInstalled, python_of, version_of
from bench.report import Line, Section
from bench.rounds import Figure, Pace

WORKERS = {1: "one worker", 2: "two workers"}


class Duel(msgspec.Struct, frozen=True):
    """The turns of one peer and of Interlock after it, on one store, with so many workers."""

    store: str
    peer: Peer
    workers: int
    theirs: tuple[Drained, ...]
    ours: tuple[Drained, ...]

    @property
    def title(self) -> str:
        """As it stands in the table."""
        return f"{self.store}, {WORKERS[self.workers]}"

    def line(self, measure: str, unit: str, what: str) -> Line:
        """One property of all the turns."""
        return Line(
            measure,
            unit,
            {
                US: Figure(tuple(getattr(turn, what) for turn in self.ours)),
                self.peer.name: Figure(tuple(getattr(turn, what) for turn in self.theirs)),
            },
        )

    @property
    def drain(self) -> Line:
        """By the clock on the wall."""
        return self.line(self.title, "µs a job", "drain_us")

    @property
    def submit(self) -> Line:
        """How it is submitted in bulk, or one by one where there is nothing else."""
        how = "in bulk" if self.theirs[0].submitted_in_bulk else "in bulk, theirs one by one"
        return self.line(f"  submitted {how}", "µs", "submit_us")

    def lines(self) -> Iterator[Line]:
        """Draining, what the processors did for it, and, once, submitting and what the store keeps."""
        yield self.drain
        yield self.line("  on the processors", "µs", "used_us")
        yield self.line("  of that in the kernel", "µs", "system_us")
        if self.workers == 1:
            yield self.submit
            yield self.line("  100,000 queued", "MB", "queued_mb")

    def notes(self) -> Iterator[str]:
        """In jobs a second, as people say it."""
        yield (
            f"{self.title}: {rate(self.drain, US):,.0f} jobs/s drained, {self.peer.name} "
            f"{rate(self.drain, self.peer.name):,.0f} ({self.drain.ratio(self.peer.name, US):.2f} times); "
            f"submitted {rate(self.submit, US):,.0f} and {rate(self.submit, self.peer.name):,.0f}."
        )

    def missed(self) -> Iterator[str]:
        """Each aim that was not reached, as a sentence."""
        name, ratio = self.peer.name, self.drain.ratio(self.peer.name, US)
        if ratio < self.peer.drain_aim:
            yield (
                f"on {self.store} with {WORKERS[self.workers]} jobs should be drained at least "
                f"{self.peer.drain_aim:g} times as fast as by {name}, and are {ratio:.2f} times as fast."
            )
        ratio = self.submit.ratio(name, US)
        if self.workers == 1 and self.peer.submit_aim is not None and ratio < self.peer.submit_aim:
            yield (
                f"on {self.store} jobs should be submitted at least {self.peer.submit_aim:g} times as fast "
                f"as by {name}, and are {ratio:.2f} times as fast."
            )


def run(pace: Pace) -> Section:
    """Measure the stores one after the other."""
    duels: list[Duel] = []
    absent: list[str] = []
    for store, peers in chosen(pace.stores, pace.peers).items():
        there = list(installed(peers, absent))
        with ground_of(store) as ground:
            for workers in WORKERS:
                duels += _duels(ground, there, workers, pace)
    few = f", at most {pace.job_at_once} at once" if pace.job_at_once else ""
    return Section(
        f"Jobs: {pace.jobs:,} no-op jobs, submitted and drained{few}",
        US,
        lines=tuple(line for duel in duels for line in duel.lines()),
        notes=(_versions(duels), *(note for duel in duels for note in duel.notes())),
        missed=(*absent, *(sentence for duel in duels for sentence in duel.missed())),
    )


def installed(peers: tuple[Peer, ...], absent: list[str]) -> Iterator[Peer]:
    """Those that could be installed; about the others there is a sentence in `absent`."""
    for peer in peers:
        try:
            python_of(peer.name)
        except NotInstalled as error:
            absent.append(f"nothing is known about {peer.name}: {error}")
        else:
            yield peer


def _versions(duels: list[Duel]) -> str:
    names = dict.fromkeys(duel.peer.name for duel in duels)
    return "Beside " + ", ".join(f"{name} {version_of(name)}" for name in names) + "."


def rate(line: Line, contender: str) -> float:
    """In jobs a second."""
    return 1e6 / line.figures[contender].median


def _duels(ground: Ground, peers: list[Peer], workers: int, pace: Pace) -> list[Duel]:
    theirs: dict[str, list[Drained]] = {peer.name: [] for peer in peers}
    ours: dict[str, list[Drained]] = {peer.name: [] for peer in peers}
    at_once = pace.job_at_once
    for _ in range(pace.job_rounds):
        for peer in peers:
            theirs[peer.name].append(drained(ground, peer.name, peer.jobs(pace.jobs), workers, at_once))
            ours[peer.name].append(drained(ground, US, pace.jobs, workers, at_once))
    return [
        Duel(ground.name, peer, workers, tuple(theirs[peer.name]), tuple(ours[peer.name])) for peer in peers
    ]
