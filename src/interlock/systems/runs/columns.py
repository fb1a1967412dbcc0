"""By what runs are found: columns of their record that a store can search.

The group is the record's queue, because only runs of one group have to find each other in a hurry;
workflow, repository, ref and commit are labels, beside those that somebody has given.
"""

from __future__ import annotations

import hashlib

from interlock.lifecycles.run import RUN
from interlock.store.limits import MAX_LABEL
from interlock.store.records import Query
from interlock.wire.runs import RunFilter, RunSpec
from interlock.wire.wanted import LOOKED_AT

_TAGS = "refs/tags/"


def group_of(spec: RunSpec) -> str:
    """The concurrency group of a run, in words: by default its workflow and ref; none without a ref.

    A change from a fork supersedes only runs of its own pull request, whatever group is named.
    """
    source = spec.source
    change = f"{source.repository} {source.ref}".strip()
    if spec.concurrency_group is not None:
        fork = f" (fork: {change})" if source.from_fork and spec.concurrency_group else ""
        return spec.concurrency_group + fork
    fork = " (fork)" if source.from_fork else ""
    return f"{spec.workflow} {change}{fork}".strip() if source.ref else ""


def group_key(spec: RunSpec) -> str | None:
    """Where the runs of one group are found; those of tags are a group of their own, always."""
    group = group_of(spec)
    if not group:
        return None
    kind = "tag" if spec.source.ref.startswith(_TAGS) else "branch"
    return f"{kind}.{_digest(group)}"


def labels_of(spec: RunSpec) -> tuple[str, ...]:
    """What the record of a run can be found by."""
    source = spec.source
    known = _sought(spec.workflow, source.repository, source.ref, source.sha, group_of(spec))
    return tuple(sorted({*known, *spec.labels}))


def query_of(wanted: RunFilter, *, newest_first: bool, cursor: str, limit: int) -> Query:
    """The filter as the store knows it."""
    known = _sought(wanted.workflow, wanted.repository, wanted.ref, wanted.sha, wanted.concurrency_group)
    return Query(
        kind=RUN.name,
        states=wanted.states,
        parent=wanted.origin_run_id or None,
        labels=tuple(sorted({*known, *wanted.labels})),
        since=wanted.since,
        until=wanted.until,
        newest_first=newest_first,
        cursor=cursor,
        limit=limit,
        within=LOOKED_AT,
    )


def label(noun: str, value: str) -> str:
    """A label that says what something is; where that is too long, a digest stands for it."""
    told = f"{noun}:{value}"
    return told if len(told) <= MAX_LABEL and told.isprintable() else f"{noun}#{_digest(value)}"


def _sought(workflow: str, repository: str, ref: str, sha: str, group: str) -> list[str]:
    told = {"workflow": workflow, "repository": repository, "ref": ref, "sha": sha, "group": group}
    return [label(noun, value) for noun, value in told.items() if value]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]
