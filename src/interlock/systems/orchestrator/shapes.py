"""Shapes: the facts that decide about a job. Jobs of one shape are decided once. Pure.

The decision is made about a job without an id, so that it shows if it depends on one. Jobs of different runs
differ by the id of their run, which is their parent and in their body. It is replaced in the same way before
the decision, and put back after it, so that one decision holds for jobs of many runs.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from interlock.store.records import Change, Commit, Record

Shape: TypeAlias = tuple[object, ...]
"""The data that a decision about a job depends on."""

ANY_JOB = "~any~job~"
"""The id of a job that represents all of its shape. No id has this character."""
ANY_RUN = "~any~run~~~~~~"
"""The id of a run that represents all runs; as long as their ids."""
_ANY_TIME = datetime(1, 1, 1, tzinfo=UTC)
"""The time of its creation, before that of any job."""
_OF_ONE = (ANY_JOB.encode(), msgspec.json.encode(_ANY_TIME))
_ANY_RUN = ANY_RUN.encode()
_encode = msgspec.json.Encoder().encode


def shape_of(record: Record) -> Shape:
    """Return the shape of a job: jobs of one shape are decided once."""
    return (
        record.state,
        record.version,
        record.body,
        record.queue,
        record.priority,
        record.parent,
        record.labels,
        record.deadline_at,
    )


def any_job(like: Record, now: datetime) -> Record:
    """Return a job that represents all of this shape, without individual data."""
    return replace(like, id=ANY_JOB, given=b"", created_at=_ANY_TIME, updated_at=now, ready_at=None)


def of_any_run(record: Record) -> Record:
    """Return a job of a run as if it were of any run.

    Jobs of no run stay as they are. So do jobs that mention their run in other places as well.
    """
    run_id, body = record.parent, record.body
    if run_id is None or len(run_id) != len(ANY_RUN):
        return record
    name = run_id.encode()
    if b'"run":{"run_id":"%s"' % name not in body or body.count(name) > 1 or _ANY_RUN in body:
        return record
    return replace(record, body=body.replace(name, _ANY_RUN), parent=ANY_RUN)


def of_run(change: Change, run_id: str | None) -> Change:
    """Return the change of a job of any run as that of a job of this run."""
    if change.parent != ANY_RUN or run_id is None:
        return change
    return replace(change, body=change.body.replace(_ANY_RUN, run_id.encode()), parent=run_id)


def is_about_one(change: Change) -> bool:
    """Return whether a change holds for the representative job only.

    It has the id or the time of creation of that job, or the id of any run where `of_run` does not replace
    it.
    """
    parent = None if change.parent == ANY_RUN else change.parent
    columns = _encode(replace(change, body=b"", parent=parent))
    return _ANY_RUN in columns or any(each in change.body or each in columns for each in _OF_ONE)


def common_change(commit: Commit) -> Change | None:
    """Return the change of all jobs that a job represents.

    It is None if the change is about one job, or about others as well.
    """
    if len(commit.changes) > 1 or commit.refusals:
        return None
    common = replace(commit.changes[0], id="", expected_at=None)
    return None if is_about_one(common) else common
