"""A run beside the last green one of its workflow, repository and ref: what failed, what is slower. Pure.

The last green run is found by the labels of run records, newest first. A store cannot search for an outcome,
so at most `LOOKS_BACK` settled runs of the last `WITHIN` are read until one is green; none of them with its
jobs but the one that is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Literal

import msgspec

from interlock.lifecycles import job, run
from interlock.wire.runs import JobChange, RunComparison, RunFilter, RunJobView, RunView

LOOKS_BACK = 100
"""How many earlier runs are read at most."""
WITHIN = timedelta(days=14)
MOST_CHANGES = 200
SLOWER_BY = 1.25
SLOWER_BY_S = 2.0
"""Less than this is noise: a busy machine, a cold cache."""
_WORST_FIRST = ("failed", "slower", "new", "gone")


def earlier_runs(view: RunView) -> RunFilter | None:
    """Return what settled runs of the same kind are found by; None when nothing says what that is."""
    if not (view.workflow or view.source.repository):
        return None
    return RunFilter(
        states=(str(run.SUCCESS), str(run.REPORTED)),
        workflow=view.workflow,
        repository=view.source.repository,
        ref=view.source.ref,
        since=view.created_at - WITHIN,
        until=view.created_at,
    )


def is_green(view: RunView, other: RunView) -> bool:
    """Return whether a run is green and of the same kind; a filter ignores what is empty."""
    return view.outcome == run.SUCCESS and _kind(view) == _kind(other)


def compared(view: RunView, green: RunView | None, looked_at: int) -> RunComparison:
    """Return the jobs that have changed since the last green run."""
    if green is None:
        return RunComparison(run_id=view.id, looked_at=looked_at)
    found = compared_with(view, green)
    return msgspec.structs.replace(found, green=found.other, other=None, looked_at=looked_at)


def compared_with(view: RunView, other: RunView) -> RunComparison:
    """Return the jobs that differ from those of another run."""
    changes = sorted(_changes(view.jobs, other.jobs), key=lambda each: _WORST_FIRST.index(each.change))
    return RunComparison(
        run_id=view.id,
        other=msgspec.structs.replace(other, jobs=(), skipped=()),
        changes=tuple(changes[:MOST_CHANGES]),
        more=max(0, len(changes) - MOST_CHANGES),
    )


def _changes(now: Sequence[RunJobView], green: Sequence[RunJobView]) -> Iterator[JobChange]:
    before = {each.name: each for each in green}
    for one in now:
        known = before.pop(one.name, None)
        if known is None:
            yield JobChange(name=one.name, change="new", job_id=one.job_id, took_s=_took_s(one))
        elif known.job_id != one.job_id and (change := _change(one, known)):
            yield change
    for gone in before.values():
        yield JobChange(name=gone.name, change="gone", before_job_id=gone.job_id, before_s=_took_s(gone))


def _change(one: RunJobView, known: RunJobView) -> JobChange | None:
    took_s, before_s = _took_s(one), _took_s(known)
    if one.state == job.FAILED and known.state == job.COMPLETED:
        return _differs(one, known, "failed")
    if took_s is None or before_s is None or one.state != job.COMPLETED:
        return None
    is_slower = took_s >= before_s * SLOWER_BY and took_s - before_s >= SLOWER_BY_S
    return _differs(one, known, "slower") if is_slower else None


def _differs(one: RunJobView, known: RunJobView, change: Literal["failed", "slower"]) -> JobChange:
    return JobChange(
        name=one.name,
        change=change,
        job_id=one.job_id,
        before_job_id=known.job_id,
        took_s=_took_s(one),
        before_s=_took_s(known),
    )


def _took_s(one: RunJobView) -> float | None:
    if one.started_at is None or one.completed_at is None:
        return None
    return (one.completed_at - one.started_at).total_seconds()


def _kind(view: RunView) -> tuple[str, str, str]:
    return view.workflow, view.source.repository, view.source.ref
