"""What a job tells its run: that it has begun, and how it has ended.

A word is a message in the very commit that makes it true, and is named after the job and its state:
so none is lost and none is said twice. Whoever looks after runs takes many words at once.
"""

from __future__ import annotations

import msgspec

from interlock.engine.outbox import outgoing
from interlock.lifecycles import job
from interlock.lifecycles.job import JOB
from interlock.store.records import Change
from interlock.systems.orchestrator.draft import Draft

RUN_JOBS = "run.jobs"
"""The topic under which runs hear of their jobs."""

_ENCODER = msgspec.json.Encoder()


class Word(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A job of a run has taken a step that concerns the run."""

    run_id: str
    place: int
    event: str
    source: str
    target: str
    unconfirmed: bool = False
    """Something of it was stopped, and nobody has said that all of it is gone."""


def nobody() -> None:
    """Who is told of a word where nobody looks after runs; the sweeps find it."""


def words_of(draft: Draft) -> tuple[Change, ...]:
    """The newest step of the job that its run has to know of, if it has taken one."""
    part = draft.body.run
    if part is None:
        return ()
    for line in reversed(draft.lines):
        if line.machine == JOB.name and line.moves and _concerns_run(line.target, part.root):
            unconfirmed = any(one.confirmed_dead is False for one in draft.body.attempts)
            word = Word(part.run_id, part.place, line.event, line.source, line.target, unconfirmed)
            return (outgoing(f"{draft.id}.{line.target}", RUN_JOBS, _ENCODER.encode(word), draft.now),)
    return ()


def _concerns_run(state: str, root: bool) -> bool:
    """A run begins with one of the jobs that need no other, and ends with any."""
    return state in job.ENDED or (root and state == job.RUNNING)
