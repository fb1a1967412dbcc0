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

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import msgspec

from interlock.errors import UnknownState
from interlock.lifecycles.job import JOB
from interlock.store.records import Query
from interlock.wire.filter_parts import Moment, gather, instant, is_one_of, text_of
from interlock.wire.filter_words import JOBS, BadFilter, Word, written

MAX_SCANNED = 10_000
"""How many records are looked at for what the store itself cannot filter by."""
ID_DIGITS = 12

_STATES = tuple(str(state) for state in JOB.states)
_ID = re.compile(rf"(?:j_)?([0-9a-f]{{1,{ID_DIGITS}}})", re.ASCII | re.IGNORECASE)


class Filter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which jobs are meant; empty parts do not filter."""

    states: tuple[str, ...] = ()
    other_than: tuple[str, ...] = ()
    """States that they are not in."""
    queues: tuple[str, ...] = ()
    labels: tuple[tuple[str, ...], ...] = ()
    """One of each group."""
    parents: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    since: Moment | None = None
    until: Moment | None = None

    def __str__(self) -> str:
        """The filter as text, which reads back as the same filter."""
        return " ".join(self._words())

    @property
    def wanted_states(self) -> tuple[str, ...]:
        """The states that a job may be in."""
        return tuple(state for state in self.states or _STATES if state not in self.other_than)

    def among(self, states: Iterable[str]) -> Filter:
        """The same jobs, but only those in one of these states."""
        others = set(_STATES) - set(states)
        left_out = tuple(state for state in _STATES if state in others or state in self.other_than)
        return msgspec.structs.replace(self, other_than=left_out)

    def selection(self, now: datetime, *, limit: int = 100, cursor: str = "") -> Selection:
        """What to ask a store for, and what has to be looked at afterwards."""
        since, until = instant(self.since, now), instant(self.until, now)
        states = self.wanted_states
        query = Query(
            kind=JOB.name,
            states=states if len(states) < len(_STATES) else (),
            queue=self.queues[0] if len(self.queues) == 1 else None,
            parent=self.parents[0] if len(self.parents) == 1 else None,
            labels=tuple(sorted({group[0] for group in self.labels if len(group) == 1})),
            since=since,
            until=until,
            limit=limit,
            cursor=cursor,
        )
        return Selection(self, query)

    def _words(self) -> Iterator[str]:
        groups = (
            ("state", self.states),
            ("-state", self.other_than),
            ("queue", self.queues),
            *(("label", group) for group in self.labels),
            ("parent", self.parents),
            ("task", self.tasks),
            ("id", self.ids),
            ("since", () if self.since is None else (text_of(self.since),)),
            ("until", () if self.until is None else (text_of(self.until),)),
        )
        yield from (written(name, values) for name, values in groups if values)


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
            view.state in wanted.wanted_states
            and is_one_of(wanted.queues, view.queue)
            and all(not set(group).isdisjoint(view.labels) for group in wanted.labels)
            and is_one_of(wanted.parents, view.parent_job_id)
            and is_one_of(wanted.tasks, view.task)
            and is_one_of(wanted.ids, view.id)
            and (since is None or view.created_at >= since)
            and (until is None or view.created_at < until)
        )


def read_filter(text: str) -> Filter:
    """The filter that somebody has typed; what is wrong is named with its place."""
    parts = gather(text, JOBS, _checked)
    names = parts.names
    found = Filter(
        states=names.get("state", ()),
        other_than=names.get("-state", ()),
        queues=names.get("queue", ()),
        labels=tuple(parts.labels),
        parents=names.get("parent", ()),
        tasks=names.get("task", ()),
        ids=names.get("id", ()),
        since=parts.moments.get("since"),
        until=parts.moments.get("until"),
    )
    if not found.wanted_states:
        raise BadFilter(
            f"The filter {text!r} leaves no state that a job could be in.",
            todo="Leave out state: or -state:.",
            facts={"filter": text},
        )
    return found


def job_id_of(text: str) -> str | None:
    """An id or the beginning of one as jobs are called, also without `j_`; None for what is none."""
    found = _ID.fullmatch(text.strip())
    return f"j_{found[1].lower()}" if found else None


def _checked(word: Word) -> tuple[str, ...]:
    match word.key:
        case "state":
            return tuple(_state(word, name) for name in word.values)
        case "id" | "parent":
            return tuple(_whole_id(word, name) for name in word.values)
        case _:
            return word.values


def _state(word: Word, name: str) -> str:
    try:
        return str(JOB.state(name))
    except UnknownState as error:
        raise word.bad(error.sentence.rstrip(".?"), allowed=error.allowed, todo=error.todo) from None


def _whole_id(word: Word, name: str) -> str:
    job_id = job_id_of(name)
    if job_id is None or len(job_id) < len("j_") + ID_DIGITS:
        raise word.bad(
            f"{name!r} is not the id of a job, which is j_ and {ID_DIGITS} hex digits",
            todo="Take ids from `interlock job list`.",
        )
    return job_id
