"""What a judge reads off a job, and how it is told."""

from __future__ import annotations

from interlock.lifecycles import job, lease
from interlock.store.records import Note
from interlock.systems.orchestrator.body import AttemptBody, JobBody
from interlock.verify.jobs.judge import Look


def why(note: Note) -> str:
    """The reason of a step, after a comma."""
    return f", {note.reason}" if note.reason else ""


def most_retries(body: JobBody) -> int:
    """How often a failure of one class may be tried again at most."""
    own = [rule.retries for rule in body.retry.values()]
    return max([3, body.retries or 0, *own])


def named(entity: str) -> tuple[int, int]:
    """The shard and the index of an attempt, by its name."""
    shard, _, index = entity.partition(".")
    return int(shard), int(index)


def was_pending(look: Look | None) -> bool:
    """Whether nothing of it was given out before."""
    return look is None or look.state is job.PENDING


def is_held(look: Look) -> bool:
    """Whether somebody has a live lease on it."""
    return any(one.lease is not None and one.lease.state in lease.LIVE for one in look.body.attempts)


def attempts_of(look: Look) -> str:
    """Its attempts, in a line."""
    return ", ".join(map(_told, look.body.attempts)) or "no attempts"


def _told(one: AttemptBody) -> str:
    return f"{one.name} {one.state}" + (f" ({one.lease.state})" if one.lease is not None else "")
