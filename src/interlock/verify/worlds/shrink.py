"""A chapter that fails, with as few faults as it takes: delta debugging over the names of its faults.

First the chapter is cut off behind the failure; then faults are left out, in halves, in quarters, one by
one, as long as the same claim is still broken. What is left is a story that one can read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

import msgspec

from interlock.verify.worlds.episode import Chapter, Played, play
from interlock.verify.worlds.mixes import faults_named
from interlock.verify.worlds.plan import HOUR_S
from interlock.verify.worlds.worlds import world_named


def again(chapter: Chapter, *, tells: bool = False) -> Played:
    """Play a chapter again."""
    return play(
        world_named(chapter.world),
        faults_named(chapter.faults),
        seed=chapter.seed,
        hours=chapter.hours,
        only=chapter.only,
        settles=chapter.settles,
        tells=tells,
    )


def shrunk(played: Played, *, within_s: float = 60.0) -> Played:
    """The same failure with as few faults as are found in so many seconds of a processor, and its story."""
    assert played.broken is not None
    claim, until = played.broken.claim, time.process_time() + within_s
    chapter = played.chapter
    settles = played.broken.at_s >= chapter.hours * HOUR_S  # what breaks at the end has to be played to it
    hours = chapter.hours if settles else _hours_up_to(played)

    def with_only(names: Collection[str]) -> Chapter:
        return msgspec.structs.replace(chapter, hours=hours, only=tuple(names), settles=settles)

    def fails(names: Collection[str]) -> bool:
        broken = again(with_only(names)).broken
        return broken is not None and broken.claim == claim

    names = fewest(played.happened, fails, lambda: time.process_time() > until)
    return again(msgspec.structs.replace(with_only(names), settles=True), tells=True)


def fewest(
    names: Sequence[str], fails: Callable[[Sequence[str]], bool], enough: Callable[[], bool]
) -> list[str]:
    """As few of the names as still fail; what is found when it has been enough."""
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


def _hours_up_to(played: Played) -> float:
    """Until shortly behind the failure; the quiet end of a chapter must not begin before it."""
    assert played.broken is not None
    quiet_s = faults_named(played.chapter.faults).quiet_at_end_s
    return min(played.chapter.hours, round((played.broken.at_s + quiet_s) / HOUR_S + 0.02, 2))
