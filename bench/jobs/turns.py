"""One turn of one contender: an empty place, jobs, workers, and proof that every job was done once."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from bench.jobs.peers.workers import tree_of
from bench.jobs.places import Ground, Sized, turn_folder
from bench.jobs.talking import Conversation, talking
from bench.stores.bare.loop import Unexpected

_TICKS = os.sysconf("SC_CLK_TCK")
PATIENCE_S, PATIENCE_JOBS_PER_S = 300.0, 100
"""Whoever is slower than that over all is not waited for."""


class Drained(msgspec.Struct, frozen=True):
    """What it took to submit so many jobs and to drain them."""

    jobs: int
    submitted_in_bulk: bool
    submit_s: float
    drain_s: float
    used_s: float
    """Of the processors, by the workers and the server, while the jobs were drained."""
    system_s: float
    """Of that, in the kernel."""
    queued: Sized
    held_mb: tuple[float, ...]
    """The workers' memory when a fifth was done, and at the end."""

    @property
    def submit_us(self) -> float:
        """For one job."""
        return self.submit_s * 1e6 / self.jobs

    @property
    def drain_us(self) -> float:
        """For one job."""
        return self.drain_s * 1e6 / self.jobs

    @property
    def used_us(self) -> float:
        """For one job."""
        return self.used_s * 1e6 / self.jobs

    @property
    def system_us(self) -> float:
        """For one job."""
        return self.system_s * 1e6 / self.jobs

    @property
    def queued_mb(self) -> float:
        """For 100,000 jobs."""
        return self.queued.mb_per_100k


class Idled(msgspec.Struct, frozen=True):
    """An idle system: how soon one job begins, what submitting it costs, what a worker holds."""

    micros: tuple[float, ...]
    submit_us: float
    held_mb: float

    def percentile_ms(self, part: float) -> float:
        """So many of the jobs had begun by then."""
        return percentile(self.micros, part) / 1e3


def drained(ground: Ground, contender: str, jobs: int, workers: int, at_once: int | None = None) -> Drained:
    """Submit the jobs, start the workers, and drain; no worker has more than so many jobs at once."""
    with turn_folder() as folder:
        place = ground.place(folder)
        with talking(contender, place.url, folder) as conversation:
            before = place.size_bytes()
            patience_s = PATIENCE_S + jobs / PATIENCE_JOBS_PER_S
            submitted = conversation.ask("submit", limit_s=patience_s, jobs=jobs, bulk=True)
            place.settle()
            queued = Sized(before, place.size_bytes(), jobs)
            conversation.ask("start", workers=workers, at_once=at_once)
            before_s = _used_s(conversation, ground)
            answer = conversation.ask("go", limit_s=2 * patience_s, within_s=patience_s)
            used_s, system_s = (
                now - then for now, then in zip(_used_s(conversation, ground), before_s, strict=True)
            )
    check_done(contender, jobs, answer)
    return Drained(
        jobs=jobs,
        submitted_in_bulk=submitted["bulk"],
        submit_s=submitted["seconds"],
        drain_s=answer["seconds"],
        used_s=used_s,
        system_s=system_s,
        queued=queued,
        held_mb=tuple(answer["held_mb"]),
    )


def idled(ground: Ground, contender: str, rounds: int, submissions: int) -> Idled:
    """One job at a time for an idle worker; then as many submissions, one by one, for nobody."""
    with turn_folder() as folder:
        place = ground.place(folder)
        with talking(contender, place.url, folder) as conversation:
            answer = conversation.ask("latency", rounds=rounds)
            conversation.ask("stop")
            submitted = conversation.ask("submit", jobs=submissions, bulk=False)
    return Idled(
        micros=tuple(answer["micros"]),
        submit_us=submitted["seconds"] * 1e6 / submissions,
        held_mb=answer["held_mb"],
    )


def percentile(values: Iterable[float], part: float) -> float:
    """The smallest value that so large a part of them does not exceed."""
    ordered = sorted(values)
    place = min(len(ordered) - 1, max(0, -(-round(part * 1e6) * len(ordered) // 1_000_000) - 1))
    return ordered[place]


def check_done(contender: str, jobs: int, answer: dict[str, Any]) -> None:
    """What was timed has to have happened: every job done by the store's word, and each run once."""
    wanted = {"done": jobs, "left": 0, "never": 0, "twice": 0}
    found = {name: answer[name] for name in wanted}
    if found != wanted:
        raise Unexpected(f"{contender} should have ended with {wanted}, and has {found}.")


def _used_s(conversation: Conversation, ground: Ground) -> tuple[float, float]:
    """The processors' time of the workers and the server so far, and how much of it was the kernel's.

    That of those who have ended is in it.
    """
    pids = [pid for pid in tree_of(conversation.pid) if pid != conversation.pid]
    pids += tree_of(ground.pid) if ground.pid else ()
    used = [_process_s(pid) for pid in pids]
    return sum(all_ for all_, _ in used), sum(system for _, system in used)


def _process_s(pid: int) -> tuple[float, float]:
    """Its own, and that of its children who were waited for; all of it, and in the kernel."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0, 0.0  # it has just ended, and is now among its parent's
    user, system, user_of_children, system_of_children = (int(word) / _TICKS for word in words[11:15])
    return user + system + user_of_children + system_of_children, system + system_of_children
