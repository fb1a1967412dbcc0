"""One way to say which workers are meant: `state:running name:web label:gpu workspace:ci since:1d`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

import msgspec

from interlock.errors import UnknownState
from interlock.lifecycles.worker import WORKER
from interlock.store.records import Query
from interlock.wire.filter_parts import Moment, gather, instant, is_one_of, text_of
from interlock.wire.filter_words import BadFilter, Vocabulary, Word, written
from interlock.wire.workers import WorkerView

WORKERS = Vocabulary(
    {
        "state": "running",
        "name": "web-1",
        "label": "gpu",
        "workspace": "default",
        "id": "w_0123456789ab",
        "since": "1d",
        "until": "10m",
    }
)

_STATES = tuple(str(state) for state in WORKER.states)


class WorkerFilter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which workers are meant; empty parts do not filter."""

    states: tuple[str, ...] = ()
    other_than: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    labels: tuple[tuple[str, ...], ...] = ()
    """One of each group."""
    workspaces: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    since: Moment | None = None
    until: Moment | None = None

    def __str__(self) -> str:
        """The filter as text, which reads back as the same filter."""
        return " ".join(self._words())

    @property
    def wanted_states(self) -> tuple[str, ...]:
        """The states that a worker may be in."""
        return tuple(state for state in self.states or _STATES if state not in self.other_than)

    def among(self, states: Iterable[str]) -> WorkerFilter:
        """The same workers, but only those in one of these states."""
        others = set(_STATES) - set(states)
        left_out = tuple(state for state in _STATES if state in others or state in self.other_than)
        return msgspec.structs.replace(self, other_than=left_out)

    def selection(self, now: datetime, *, limit: int = 100, cursor: str = "") -> WorkerSelection:
        """What to ask a store for, and what has to be looked at afterwards."""
        states = self.wanted_states
        query = Query(
            kind=WORKER.name,
            states=states if len(states) < len(_STATES) else (),
            queue=self.workspaces[0] if len(self.workspaces) == 1 else None,
            parent=self.names[0] if len(self.names) == 1 else None,
            labels=tuple(sorted({group[0] for group in self.labels if len(group) == 1})),
            since=instant(self.since, now),
            until=instant(self.until, now),
            limit=limit,
            cursor=cursor,
        )
        return WorkerSelection(self, query)

    def _words(self) -> Iterator[str]:
        groups = (
            ("state", self.states),
            ("-state", self.other_than),
            ("name", self.names),
            *(("label", group) for group in self.labels),
            ("workspace", self.workspaces),
            ("id", self.ids),
            ("since", () if self.since is None else (text_of(self.since),)),
            ("until", () if self.until is None else (text_of(self.until),)),
        )
        yield from (written(name, values) for name, values in groups if values)


@dataclass(frozen=True, slots=True)
class WorkerSelection:
    """A filter at a moment: a question to the store, and a test for what the store cannot answer."""

    filter: WorkerFilter
    query: Query

    def keeps(self, view: WorkerView) -> bool:
        """Whether a worker is meant."""
        wanted, since, until = self.filter, self.query.since, self.query.until
        return (
            view.state in wanted.wanted_states
            and is_one_of(wanted.names, view.name)
            and all(not set(group).isdisjoint(view.labels) for group in wanted.labels)
            and is_one_of(wanted.workspaces, view.workspace_id)
            and is_one_of(wanted.ids, view.id)
            and (since is None or view.created_at >= since)
            and (until is None or view.created_at < until)
        )


def read_worker_filter(text: str) -> WorkerFilter:
    """The filter that somebody has typed; what is wrong is named with its place."""
    parts = gather(text, WORKERS, _checked)
    names = parts.names
    found = WorkerFilter(
        states=names.get("state", ()),
        other_than=names.get("-state", ()),
        names=names.get("name", ()),
        labels=tuple(parts.labels),
        workspaces=names.get("workspace", ()),
        ids=names.get("id", ()),
        since=parts.moments.get("since"),
        until=parts.moments.get("until"),
    )
    if not found.wanted_states:
        raise BadFilter(
            f"The filter {text!r} leaves no state that a worker could be in.",
            todo="Leave out state: or -state:.",
            facts={"filter": text},
        )
    return found


def _checked(word: Word) -> tuple[str, ...]:
    if word.key != "state":
        return word.values
    try:
        return tuple(str(WORKER.state(name)) for name in word.values)
    except UnknownState as error:
        raise word.bad(error.sentence.rstrip(".?"), allowed=error.allowed, todo=error.todo) from None
