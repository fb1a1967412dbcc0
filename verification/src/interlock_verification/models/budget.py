"""The budget of a plan: the remaining faults and user requests, in the bits of one number."""

from __future__ import annotations

from interlock_verification.models.plan import ModelPlan

CRASHES, DUPLICATES, LOSSES, RELEASES, CANCELS = 1, 1 << 3, 1 << 6, 1 << 9, 1 << 12
"""One unit of each; the remaining number has three bits."""

_ASKED, _WANTED = 15, 18


def first(plan: ModelPlan) -> int:
    """Return the initial budget of the plan."""
    return (
        plan.crashes * CRASHES
        + plan.duplicates * DUPLICATES
        + plan.losses * LOSSES
        + plan.releases * RELEASES
        + plan.cancels * CANCELS
    )


def has(spare: int, unit: int) -> bool:
    """Return whether a unit is left."""
    return bool(spare & 7 * unit)


def cancel_committed(job: int) -> int:
    """Return the bit for a user's cancel of this job that was committed."""
    return 1 << (_ASKED + job)


def wanted(job: int) -> int:
    """Return the bit for a user's cancel of this job that was sent."""
    return 1 << (_WANTED + job)


def swapped(spare: int, order: tuple[int, ...]) -> int:
    """Return the budget with the jobs renamed: job n becomes order[n]."""
    moved = spare & ((1 << _ASKED) - 1)
    for job, new in enumerate(order):
        moved |= cancel_committed(new) if spare & cancel_committed(job) else 0
        moved |= wanted(new) if spare & wanted(job) else 0
    return moved
