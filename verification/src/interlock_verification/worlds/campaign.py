"""Many episodes: every world with every mix of faults, seed after seed, on several processors.

A failing episode is shrunk to a minimal set of faults, by delta debugging.
"""

from __future__ import annotations

import gc
import multiprocessing
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import count
from typing import TypeAlias

import msgspec

from interlock_verification.required_events import LATE, REQUIRED_EVENTS
from interlock_verification.worlds.episode import Episode, EpisodeResult, play
from interlock_verification.worlds.faults import MIXES, Faults, faults_named
from interlock_verification.worlds.worlds import HOUR_S, WORLDS, World, world_named


def replay(episode: Episode, *, keeps_story: bool = False) -> EpisodeResult:
    """Run an episode again."""
    return play(
        world_named(episode.world),
        faults_named(episode.faults),
        seed=episode.seed,
        hours=episode.hours,
        only=episode.only,
        settles=episode.settles,
        keeps_story=keeps_story,
    )


def shrunk(played: EpisodeResult, *, within_s: float = 60.0) -> EpisodeResult:
    """Return the same failure with few faults, and its story.

    There are as few faults as are found within the time.
    """
    assert played.broken is not None
    claim, until = played.broken.claim, time.process_time() + within_s
    episode = played.episode
    settles = played.broken.at_s >= episode.hours * HOUR_S  # a failure at the end needs the whole episode
    hours = episode.hours if settles else _hours_up_to(played)

    def with_only(names: Collection[str]) -> Episode:
        return msgspec.structs.replace(episode, hours=hours, only=tuple(names), settles=settles)

    def fails(names: Collection[str]) -> bool:
        broken = replay(with_only(names)).broken
        return broken is not None and broken.claim == claim

    names = fewest(played.happened, fails, lambda: time.process_time() > until)
    return replay(msgspec.structs.replace(with_only(names), settles=True), keeps_story=True)


def fewest(
    names: Sequence[str], fails: Callable[[Sequence[str]], bool], enough: Callable[[], bool]
) -> list[str]:
    """Return a minimal subset of the names that still fails.

    If time runs out it is the best one found.
    """
    kept, parts = list(names), 2
    if fails([]):
        return []
    while len(kept) > 1 and not enough():
        size = -(-len(kept) // parts)
        slices = [kept[start : start + size] for start in range(0, len(kept), size)]
        rests = [[name for name in kept if name not in set(part)] for part in slices]
        smaller = next((part for part in (*slices, *rests) if part and not enough() and fails(part)), None)
        if smaller is not None and len(smaller) < len(kept):
            parts = 2 if smaller in slices else max(parts - 1, 2)
            kept = smaller
        elif parts >= len(kept):
            break
        else:
            parts = min(2 * parts, len(kept))
    return kept


def _hours_up_to(played: EpisodeResult) -> float:
    """Return the hours until shortly after the failure.

    The quiet end of the episode comes after them.
    """
    assert played.broken is not None
    quiet_s = faults_named(played.episode.faults).quiet_at_end_s
    return min(played.episode.hours, round((played.broken.at_s + quiet_s) / HOUR_S + 0.02, 2))


EVENTS_OF_SYSTEMS = (
    "a depth of a tree is full",
    "a handler has waited for its children",
    "a subtree is stopped",
    "a simulation continues on another worker",
    "simulation paused",
    "simulation interrupted",
    "simulation cancelled",
    "the leases of a worker are released",
    "a runner is quarantined",
    "worker PAUSED",
    "worker COMPLETED",
    "worker TERMINATED in silence",
)
EVENTS_OF_FLEETS = (
    "a workload completes on every agent",
    "agents begin together",
    "an agent is lost, and the others continue",
    "too few agents are reachable",
    "clocks are not known well enough",
    "a clock is set between the announcement and the start",
    "a workload is stopped before its end",
    "a workload that does not stop is killed",
    "every reachable agent has stopped when a drive ends",
    "two controllers request one agent, and one is refused",
    "a controller dies while its agents run, and they stop",
    "a stream breaks",
    "a late message for an old workload",
    "an earlier workload is requested again",
)
EVENTS_OF_WORLDS = (*REQUIRED_EVENTS, LATE, *EVENTS_OF_SYSTEMS, *EVENTS_OF_FLEETS)
"""Events that must occur in a long campaign, so that no claim holds vacuously."""
LONG_H = 2_000.0
"""Minimum hours of a long campaign with every world and mix."""

NoteProgress: TypeAlias = Callable[[float], None]
"""Called with the hours simulated so far."""


class Campaign(msgspec.Struct, kw_only=True):
    """The results of many episodes."""

    episodes: int = 0
    hours: float = 0.0
    seconds: float = 0.0
    """Processor seconds in all."""
    faults: Counter[str] = msgspec.field(default_factory=Counter)
    seen: Counter[str] = msgspec.field(default_factory=Counter)
    submitted: int = 0
    settled: int = 0
    turns: int = 0
    failures: list[EpisodeResult] = msgspec.field(default_factory=list)
    unseen: list[str] = msgspec.field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether every claim held, and every required event occurred."""
        return not self.failures and not self.unseen

    def add(self, played: EpisodeResult) -> None:
        """Add an episode."""
        self.episodes += 1
        self.hours += played.episode.hours
        self.seconds += played.seconds
        self.faults.update(played.faults)
        self.seen.update(played.seen)
        self.submitted += played.submitted
        self.settled += played.settled
        self.turns += played.turns
        if not played.ok:
            self.failures.append(played)


def episodes_of(
    hours: float, *, worlds: Sequence[World] = (), faults: Sequence[Faults] = (), seed: int = 1
) -> Iterator[Episode]:
    """Yield episodes with these hours in sum.

    There is one of each world with each mix in turn, each with a new seed.
    """
    pairs = _pairs(worlds, faults)
    short = hours < sum(world.episode_h for world, _ in pairs)
    left, seeds = hours, count(seed)
    while left > 0:
        for world, mix in pairs:
            length = min(world.short_episode_h if short else world.episode_h, left)
            if length <= 0:
                return
            left -= length
            yield Episode(world=world.name, faults=mix.name, seed=next(seeds), hours=round(length, 3))


def episodes_with(
    seed: int,
    *,
    worlds: Sequence[World] = (),
    faults: Sequence[Faults] = (),
    hours: float | None = None,
    only: tuple[str, ...] | None = None,
) -> list[Episode]:
    """Return one episode with this seed of each world and mix."""
    return [
        Episode(world=world.name, faults=mix.name, seed=seed, hours=hours or world.episode_h, only=only)
        for world, mix in _pairs(worlds, faults)
    ]


def play_all(
    episodes: Sequence[Episode], *, processes: int = 1, progress: NoteProgress | None = None
) -> Campaign:
    """Run all episodes; continue after a failure, since others may say more."""
    campaign = Campaign()
    for one in _played(episodes, processes):
        campaign.add(one)
        if progress is not None:
            progress(campaign.hours)
    everything = {(episode.world, episode.faults) for episode in episodes}
    if campaign.hours >= LONG_H and len(everything) >= len(WORLDS) * (len(MIXES) - 1):
        campaign.unseen = [event for event in EVENTS_OF_WORLDS if not campaign.seen[event]]
    return campaign


def _pairs(worlds: Sequence[World], faults: Sequence[Faults]) -> list[tuple[World, Faults]]:
    """Return each world with each mix; the mix without faults only on request."""
    mixes = faults or [mix for mix in MIXES if mix.name != "none"]
    return [(world, mix) for world in worlds or WORLDS for mix in mixes]


def _played(episodes: Sequence[Episode], processes: int) -> Iterator[EpisodeResult]:
    if processes <= 1 or len(episodes) == 1:
        yield from map(replay, episodes)
        return
    longest_first = sorted(episodes, key=lambda episode: -episode.hours)
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, _begin, maxtasksperchild=50) as pool:
        yield from pool.imap_unordered(replay, longest_first)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends this one
    gc.set_threshold(50_000, 20, 20)  # a world creates many short-lived objects
