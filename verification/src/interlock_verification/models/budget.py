"""The budget of a plan: how many faults and user requests are left, in the bits of one number."""

from __future__ import annotations

from interlock_verification.models.plan import Plan

CRASHES, DUPLICATES, LOSSES, RELEASES, CANCELS = 1, 1 << 3, 1 << 6, 1 << 9, 1 << 12
"""One of each; three bits hold how many are left."""

_ASKED, _WANTED = 15, 18


def first(plan: Plan) -> int:
    """What the plan allows."""
    return (
        plan.crashes * CRASHES
        + plan.duplicates * DUPLICATES
        + plan.losses * LOSSES
        + plan.releases * RELEASES
        + plan.cancels * CANCELS
    )


def has(spare: int, unit: int) -> bool:
    """Whether one is left."""
    return bool(spare & 7 * unit)


def asked(job: int) -> int:
    """The bit that says: a user's cancel of this job was carried out."""
    return 1 << (_ASKED + job)


def wanted(job: int) -> int:
    """The bit that says: a user has sent a cancel of this job."""
    return 1 << (_WANTED + job)


def swapped(spare: int, order: tuple[int, ...]) -> int:
    """The same with the jobs renamed: job n is now called order[n]."""
    moved = spare & ((1 << _ASKED) - 1)
    for job, new in enumerate(order):
        moved |= asked(new) if spare & asked(job) else 0
        moved |= wanted(new) if spare & wanted(job) else 0
    return moved
