"""What it means that some of the agents are missing: a policy, and the verdict that follows from it.

A result says which part of the fleet it speaks for. What came of some agents alone is never passed
off as what came of all of them: it is PARTIAL, whatever the policy puts up with.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from interlock.lifecycles.workload import Status


class Policy(StrEnum):
    """How many of the agents have to be there to the end."""

    ALL = "all"
    MAJORITY = "majority"
    BEST_EFFORT = "best-effort"


class Verdict(StrEnum):
    """What a result is worth."""

    COMPLETE = "COMPLETE"
    """Every agent has completed."""
    DEGRADED = "DEGRADED"
    """Every agent has completed, but not as was asked: too far apart, or with wrong numbers."""
    PARTIAL = "PARTIAL"
    """As many as the policy wants, but not all."""
    FAILED = "FAILED"
    """Fewer than the policy wants."""
    ABORTED = "ABORTED"
    """Somebody stopped it."""


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the fleet a result speaks for."""

    agents: int
    completed: int
    lost: int
    needed: int

    @property
    def share(self) -> float:
        """The part that completed."""
        return self.completed / self.agents if self.agents else 0.0


def needed(policy: Policy, agents: int) -> int:
    """How many of them have to complete."""
    match policy:
        case Policy.ALL:
            return agents
        case Policy.MAJORITY:
            return agents // 2 + 1
        case Policy.BEST_EFFORT:
            return min(1, agents)


def covered(policy: Policy, finals: Iterable[Status | None]) -> Coverage:
    """From how each of them ended; None for one of which nothing was heard in the end."""
    ended = list(finals)
    completed = sum(final is Status.COMPLETED for final in ended)
    return Coverage(
        agents=len(ended),
        completed=completed,
        lost=len(ended) - completed,
        needed=needed(policy, len(ended)),
    )


def can_still_do(policy: Policy, agents: int, lost: int) -> bool:
    """Whether it is worth going on although so many are lost."""
    return agents - lost >= needed(policy, agents)


def verdict_of(coverage: Coverage, *, stopped: bool, flawed: bool = False) -> Verdict:
    """What the result is worth; a stop that came too late to stop anybody changes nothing."""
    if coverage.agents and coverage.completed == coverage.agents:
        return Verdict.DEGRADED if flawed else Verdict.COMPLETE
    if stopped:
        return Verdict.ABORTED
    return Verdict.PARTIAL if coverage.completed >= coverage.needed else Verdict.FAILED
