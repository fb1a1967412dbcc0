"""One way to say which jobs are meant, for the command line, the API and the dashboard.

    state:failed queue:ci since:1h      failed jobs of the queue ci, submitted in the last hour
    state:failed,canceled               either of them; so with every key that takes names
    -state:completed                    anything but that (states only)
    label:gpu label:big                 both labels; label:gpu,big is either
    task:shop.send parent:j_… id:j_…    by task, by parent, by id
    since:2026-01-31 until:10m          submitted since that day (UTC) and before ten minutes ago
    queue:"night shift"                 a name with a space or a comma

All words must hold. States may be spelled in any case, with one l or two in cancel(l)ed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from interlock.lifecycles.job import JOB
from interlock.store.records import Query
from interlock.wire.filter_parts import gather, instant, is_one_of
from interlock.wire.filter_words import JOBS, Word
from interlock.wire.wanted import (
    LOOKED_AT,
    Said,
    Wanted,
    check_possible,
    common_parts,
    id_of,
    state_of,
    whole_id,
)

MAX_SCANNED = 10_000
"""How many records are looked at for what the store itself cannot filter by."""


class Filter(Wanted, frozen=True, kw_only=True, omit_defaults=True):
    """Which jobs are meant; empty parts do not filter."""

    machine = JOB
    queues: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()

    def selection(self, now: datetime, *, limit: int = 100, cursor: str = "") -> Selection:
        """What to ask a store for, and what has to be looked at afterwards."""
        query = Query(
            kind=JOB.name,
            states=self.asked_states,
            queue=self.queues[0] if len(self.queues) == 1 else None,
            parent=self.parents[0] if len(self.parents) == 1 else None,
            labels=self.sure_labels,
            since=instant(self.since, now),
            until=instant(self.until, now),
            limit=limit,
            cursor=cursor,
            within=LOOKED_AT,
        )
        return Selection(self, query)

    def own_words(self) -> Iterator[Said]:
        """Queues, parents and tasks."""
        yield from (("queue", self.queues), ("parent", self.parents), ("task", self.tasks))


class Shown(Protocol):
    """As much of a job as a filter asks about."""

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
    """A filter at a moment: a question to the store, and a test for what the store cannot answer."""

    filter: Filter
    query: Query

    @property
    def impossible(self) -> bool:
        """No job can match, so that the store need not be asked."""
        return not self.filter.wanted_states

    @property
    def exact(self) -> bool:
        """What the store finds needs no second look."""
        wanted = self.filter
        groups = (wanted.queues, wanted.parents, *wanted.labels)
        return not wanted.ids and not wanted.tasks and all(len(group) <= 1 for group in groups)

    def keeps(self, view: Shown) -> bool:
        """Whether a job is meant."""
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
    """The filter that somebody has typed; what is wrong is named with its place."""
    parts = gather(text, JOBS, _checked)
    found = Filter(
        queues=parts.names.get("queue", ()),
        parents=parts.names.get("parent", ()),
        tasks=parts.names.get("task", ()),
        **common_parts(parts),
    )
    check_possible(found, text)
    return found


def job_id_of(text: str) -> str | None:
    """An id or the beginning of one as jobs are called, also without `j_`; None for what is none."""
    return id_of(text, "j")


def _checked(word: Word) -> tuple[str, ...]:
    match word.key:
        case "state":
            return tuple(state_of(word, name, JOB) for name in word.values)
        case "id" | "parent":
            return tuple(whole_id(word, name, "j", JOB.name) for name in word.values)
        case _:
            return word.values
