"""Put jobs together: which job comes after which.

first = await il.submit(fetch, url)
await il.submit(store.options(after=[first]))
await il.submit(report.options(after=any_of(first, other, on="end")))
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from interlock.errors import InvalidArguments
from interlock.wire.jobs import After, AfterEnd, AfterNeed, AfterPolicy

if TYPE_CHECKING:
    from interlock.worker.signatures import AfterJobs, HasId


def all_of(
    *jobs: str | HasId,
    on: AfterEnd = "success",
    otherwise: AfterPolicy = "cancel",
    into: str = "",
) -> After:
    """Let a job wait for all of these jobs: `task.options(after=all_of(a, b))`.

    `on` is "success", or "end" for an end of whatever kind. `otherwise` says what happens if it waits in
    vain: "cancel", or "skip" so that jobs after it go on. `into` is the argument that gets the result of one
    job, or the list of the results of several.
    """
    return _rule(jobs, "all", on, otherwise, into)


def any_of(
    *jobs: str | HasId,
    on: AfterEnd = "success",
    otherwise: AfterPolicy = "cancel",
    into: str = "",
) -> After:
    """Let a job wait for the first of these jobs; the parameters are those of `all_of`.

    `into` is the argument that gets the result of that first job.
    """
    return _rule(jobs, "any", on, otherwise, into)


def _rule(
    jobs: Iterable[str | HasId], need: AfterNeed, on: AfterEnd, otherwise: AfterPolicy, into: str
) -> After:
    ids = tuple([each if isinstance(each, str) else each.id for each in jobs])
    return After(jobs=ids, need=need, on=on, otherwise=otherwise, into=into)


def rule_of(after: AfterJobs) -> After:
    """Return the rule for jobs that have to succeed first; a rule is returned as it is."""
    if isinstance(after, After):
        return after
    if isinstance(after, str) or not isinstance(after, Sequence):
        raise InvalidArguments(
            "after takes a list of jobs.",
            todo="Write after=[job], or after=any_of(job, other).",
            facts={"option": "after"},
        )
    return all_of(*after)
