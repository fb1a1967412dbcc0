"""Filters for jobs, runs and workers, the same for the command line, the API and the dashboard.

    state:failed queue:ci since:1h      failed jobs of the queue ci, submitted in the last hour
    state:failed,canceled               either of them; so with every key that takes names
    -state:completed                    anything but that (states only)
    label:gpu label:big                 both labels; label:gpu,big is either
    task:shop.send parent:j_… id:j_…    by task, by parent, by id
    since:2026-01-31 until:10m          submitted since that day (UTC) and before ten minutes ago
    queue:"night shift"                 a name with a space or a comma

    outcome:failed workflow:ci since:1d      runs of the workflow ci that failed, of the last day
    -state:reported                          runs that are not over yet, or not reported
    repository:shop/web branch:main          by repository, and by branch; also tag:v1 and ref:refs/…
    sha:5f1c0d0… label:nightly id:r_…        by commit, by label, by id

    state:running name:web label:gpu workspace:ci since:1d   workers

All words must hold. States may be spelled in any case, with one l or two in cancel(l)ed. A run that was
reported keeps its outcome, so `outcome` finds it and `state` does not. Filters become queries of the store,
which workers must not import; so they stand apart from the structs of jobs, runs and workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import msgspec

from interlock.errors import BadFilter
from interlock.lifecycles.job import JOB
from interlock.lifecycles.run import OUTCOMES, RUN
from interlock.lifecycles.worker import WORKER
from interlock.store.records import Query
from interlock.wire.filter_language import (
    JOBS,
    LOOKED_AT,
    Said,
    Vocabulary,
    Wanted,
    Word,
    check_possible,
    common_parts,
    gather,
    id_of,
    instant,
    is_one_of,
    state_of,
    whole_id,
)
from interlock.wire.runs import RunFilter, RunView
from interlock.wire.workers import WorkerView

MAX_SCANNED = 10_000
"""Records that are examined for a filter that the store cannot evaluate."""


def _query(wanted: Wanted, now: datetime, *, queues: Sequence[str], parents: Sequence[str]) -> Query:
    """Return the part of a filter that the store evaluates.

    The store evaluates one queue and one parent, but not several.
    """
    return Query(
        kind=wanted.machine.name,
        states=wanted.queried_states,
        queue=queues[0] if len(queues) == 1 else None,
        parent=parents[0] if len(parents) == 1 else None,
        labels=wanted.sure_labels,
        since=instant(wanted.since, now),
        until=instant(wanted.until, now),
        within=LOOKED_AT,
    )


class Filter(Wanted, frozen=True, kw_only=True, omit_defaults=True):
    """A filter of jobs; empty parts do not filter."""

    machine = JOB
    queues: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()

    def selection(self, now: datetime, *, limit: int = 100, cursor: str = "") -> Selection:
        """Return the query for the store, and the filter for its results."""
        query = _query(self, now, queues=self.queues, parents=self.parents)
        return Selection(self, msgspec.structs.replace(query, limit=limit, cursor=cursor))

    def own_words(self) -> Iterator[Said]:
        """Yield queues, parents and tasks."""
        yield from (("queue", self.queues), ("parent", self.parents), ("task", self.tasks))


class FilteredFields(Protocol):
    """The fields of a job that a filter reads."""

    @property
    def id(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def labels(self) -> tuple[str, ...]: ...
    @property
    def parent_job_id(self) -> str | None: ...
    @property
    def task(self) -> str: ...
    @property
    def created_at(self) -> datetime: ...


@dataclass(frozen=True, slots=True)
class Selection:
    """A filter of jobs at a moment: the query for the store, and a test for each result."""

    filter: Filter
    query: Query

    @property
    def impossible(self) -> bool:
        """Whether no job can match, so that the store is not asked."""
        return not self.filter.wanted_states

    @property
    def exact(self) -> bool:
        """Whether the query alone decides, so that results need no further test."""
        wanted = self.filter
        groups = (wanted.queues, wanted.parents, *wanted.labels)
        return not wanted.ids and not wanted.tasks and all(len(group) <= 1 for group in groups)

    def keeps(self, view: FilteredFields) -> bool:
        """Return whether a job matches."""
        wanted, since, until = self.filter, self.query.since, self.query.until
        return (
            wanted.knows(view.id, view.state, view.labels)
            and is_one_of(wanted.queues, view.queue)
            and is_one_of(wanted.parents, view.parent_job_id)
            and is_one_of(wanted.tasks, view.task)
            and (since is None or view.created_at >= since)
            and (until is None or view.created_at < until)
        )


def read_filter(text: str) -> Filter:
    """Parse a filter of jobs; raise `BadFilter` with the position of a fault."""
    parts = gather(text, JOBS, _checked_job_filter)
    found = Filter(
        queues=parts.names.get("queue", ()),
        parents=parts.names.get("parent", ()),
        tasks=parts.names.get("task", ()),
        **common_parts(parts),
    )
    check_possible(found, text)
    return found


def job_id_of(text: str) -> str | None:
    """Return the id of a job or a prefix of one, also without `j_`.

    Return None if it is neither.
    """
    return id_of(text, "j")


def _checked_job_filter(word: Word) -> tuple[str, ...]:
    match word.key:
        case "state":
            return tuple(state_of(word, name, JOB) for name in word.values)
        case "id" | "parent":
            return tuple(whole_id(word, name, "j", JOB.name) for name in word.values)
        case _:
            return word.values


RUNS = Vocabulary(
    {
        "state": "running",
        "outcome": "failed",
        "workflow": "ci",
        "repository": "shop/web",
        "branch": "main",
        "tag": "v1",
        "ref": "refs/heads/main",
        "sha": "5f1c0d0",
        "group": "release",
        "label": "nightly",
        "origin": "r_0123456789ab",
        "id": "r_0123456789ab",
        "since": "1d",
        "until": "10m",
    },
    states=tuple(map(str, RUN.states)),
)

_ONE_VALUE = ("workflow", "repository", "ref", "sha", "group", "origin")


class WantedRuns(Wanted, frozen=True, kw_only=True, omit_defaults=True):
    """A filter of runs; empty parts do not filter."""

    machine = RUN
    outcomes: tuple[str, ...] = ()
    workflow: str = ""
    repository: str = ""
    ref: str = ""
    sha: str = ""
    group: str = ""
    origin: str = ""

    @property
    def exact(self) -> bool:
        """Whether the query alone decides, so that results need no further test."""
        return not self.ids and not self.outcomes and all(len(group) == 1 for group in self.labels)

    def query(self, now: datetime) -> RunFilter:
        """Return the query for the store."""
        return RunFilter(
            states=self.queried_states,
            workflow=self.workflow,
            repository=self.repository,
            ref=self.ref,
            sha=self.sha,
            concurrency_group=self.group,
            origin_run_id=self.origin,
            labels=self.sure_labels,
            since=instant(self.since, now),
            until=instant(self.until, now),
        )

    def keeps(self, view: RunView) -> bool:
        """Return whether a run matches the parts that the store cannot evaluate."""
        return self.knows(view.id, view.state, view.labels) and is_one_of(self.outcomes, view.outcome)

    def own_words(self) -> Iterator[Said]:
        """Yield the outcome and the source."""
        yield "outcome", self.outcomes
        yield from ((name, (value,)) for name in _ONE_VALUE if (value := getattr(self, name)))


def read_run_filter(text: str) -> WantedRuns:
    """Parse a filter of runs; raise `BadFilter` with the position of a fault."""
    parts = gather(text, RUNS, _checked_run_filter)
    names = parts.names
    fields = common_parts(parts)
    fields |= {name: names[name][0] for name in _ONE_VALUE if name in names}
    fields["ref"] = _ref(text, names)
    found = WantedRuns(outcomes=names.get("outcome", ()), **fields)
    check_possible(found, text)
    return found


def run_id_of(text: str) -> str | None:
    """Return the id of a run or a prefix of one, also without `r_`.

    Return None if it is neither.
    """
    return id_of(text, "r")


def _ref(text: str, names: dict[str, tuple[str, ...]]) -> str:
    """Return the ref that `branch`, `tag` or `ref` names."""
    fields = [
        f"{prefix}{names[key][0]}"
        for key, prefix in (("branch", "refs/heads/"), ("tag", "refs/tags/"), ("ref", ""))
        if key in names
    ]
    if len(fields) > 1:
        raise BadFilter(
            f"The filter {text!r} names several refs, and a run has one.",
            todo="Leave all but one of branch:, tag: and ref: out.",
            facts={"filter": text},
        )
    return fields[0] if fields else ""


def _checked_run_filter(word: Word) -> tuple[str, ...]:
    match word.key:
        case "state":
            return tuple(state_of(word, name, RUN) for name in word.values)
        case "outcome":
            return tuple(_outcome(word, name) for name in word.values)
        case "id":
            return tuple(whole_id(word, name, "r", RUN.name) for name in word.values)
        case "label":
            return word.values
    if len(word.values) > 1:
        raise word.bad(f"{word.key} takes one value", todo="Give one.")
    return word.values if word.key != "origin" else (whole_id(word, word.values[0], "r", RUN.name),)


def _outcome(word: Word, name: str) -> str:
    state = state_of(word, name, RUN)
    known = tuple(str(outcome) for outcome in OUTCOMES)
    if state not in known:
        raise word.bad(f"{state} is not an outcome", todo=f"Use one of: {', '.join(known)}.", allowed=known)
    return state


WORKERS = Vocabulary(
    {
        "state": "running",
        "name": "web-1",
        "label": "gpu",
        "queue": "mail",
        "workspace": "default",
        "id": "w_0123456789ab",
        "since": "1d",
        "until": "10m",
    },
    states=tuple(map(str, WORKER.states)),
)


class WorkerFilter(Wanted, frozen=True, kw_only=True, omit_defaults=True):
    """A filter of workers; empty parts do not filter."""

    machine = WORKER
    names: tuple[str, ...] = ()
    workspaces: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    """Queues; the worker takes jobs from at least one of them."""

    def selection(self, now: datetime, *, limit: int = 100, cursor: str = "") -> WorkerSelection:
        """Return the query for the store, and the filter for its results."""
        query = _query(self, now, queues=self.workspaces, parents=self.names)
        return WorkerSelection(self, msgspec.structs.replace(query, limit=limit, cursor=cursor))

    def own_words(self) -> Iterator[Said]:
        """Yield names, workspaces and queues."""
        yield from (("name", self.names), ("workspace", self.workspaces), ("queue", self.queues))


@dataclass(frozen=True, slots=True)
class WorkerSelection:
    """A filter of workers at a moment: the query for the store, and a test for each result."""

    filter: WorkerFilter
    query: Query

    def keeps(self, view: WorkerView) -> bool:
        """Return whether a worker matches."""
        wanted, since, until = self.filter, self.query.since, self.query.until
        return (
            wanted.knows(view.id, view.state, view.labels)
            and is_one_of(wanted.names, view.name)
            and is_one_of(wanted.workspaces, view.workspace_id)
            and (not wanted.queues or not set(wanted.queues).isdisjoint(view.queues))
            and (since is None or view.created_at >= since)
            and (until is None or view.created_at < until)
        )


def read_worker_filter(text: str) -> WorkerFilter:
    """Parse a filter of workers.

    Raise `BadFilter` with the position of a fault.
    """
    parts = gather(text, WORKERS, _checked_worker_filter)
    found = WorkerFilter(
        names=parts.names.get("name", ()),
        workspaces=parts.names.get("workspace", ()),
        queues=parts.names.get("queue", ()),
        **common_parts(parts),
    )
    check_possible(found, text)
    return found


def _checked_worker_filter(word: Word) -> tuple[str, ...]:
    if word.key != "state":
        return word.values
    return tuple(state_of(word, name, WORKER) for name in word.values)
