"""What counts against a runner. Pure.

An *occasion* is what counts, not a lease: a runner with eight slots that is killed once loses eight leases
and has had one accident. So losses that follow each other closely are one occasion. And only work counts that
nobody else has lost: a job that kills every runner is known by that very fact, and what the first of them was
blamed for is taken back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

import msgspec

RUNNER_LOST = "runner.lost"
"""The topic of messages that a runner has lost a job."""
OCCASION = timedelta(seconds=60)
"""Losses that come within so long after the first of them are one occasion."""
MOST = 200
"""How many losses are remembered."""


class QuarantineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When a runner is given no more work; the section `[quarantine]` of the project file."""

    occasions: int = 3
    """So many of them are too many."""
    within_s: float = 3_600.0
    lasts_s: float = 1_800.0


class Loss(msgspec.Struct, frozen=True, array_like=True):
    """A job that was lost."""

    job_id: str
    at: datetime


class StandingBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a runner that has lost work."""

    runner: str
    losses: tuple[Loss, ...] = ()
    """The latest last; each job once."""
    until: datetime | None = None
    """Until when it is given nothing."""
    reason: str = ""


class Lost(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Word that a runner was not heard of in time."""

    runner: str
    job_id: str
    attempt: str
    others: tuple[str, ...] = ()
    """Runners that have lost the same job before."""


def name_of(runner_id: str) -> str:
    """The runner, whichever life of its process it was."""
    return runner_id.rpartition("#")[0] or runner_id


def label_of(runner: str) -> str:
    """What the standing of a runner is found by."""
    return f"runner.{hashlib.sha256(runner.encode()).hexdigest()[:32]}"


def with_loss(body: StandingBody, job_id: str, now: datetime, within_s: float) -> StandingBody:
    """One more; what is older than the window is forgotten."""
    young = [
        one for one in body.losses if one.at > now - timedelta(seconds=within_s) and one.job_id != job_id
    ]
    return msgspec.structs.replace(body, losses=(*young, Loss(job_id, now))[-MOST:])


def without(body: StandingBody, jobs: Collection[str]) -> StandingBody:
    """The same without what was not its fault."""
    return msgspec.structs.replace(body, losses=tuple(one for one in body.losses if one.job_id not in jobs))


def occasions(losses: Iterable[Loss]) -> int:
    """On how many occasions something was lost."""
    count, began = 0, None
    for at in sorted(one.at for one in losses):
        if began is None or at > began + OCCASION:
            count, began = count + 1, at
    return count


def sentence_of(body: StandingBody) -> str:
    """Why it is given nothing, in words."""
    jobs = ", ".join(one.job_id for one in body.losses[-3:])
    until = "" if body.until is None else f" until {body.until:%Y-%m-%d %H:%M:%S} UTC"
    return (
        f"{body.runner} is quarantined{until}: it was not heard of on {occasions(body.losses)} occasions "
        f"while it had work, the last of it {jobs}."
    )
