"""One way to say which workers are meant: `state:running name:web label:gpu workspace:ci since:1d`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from interlock.lifecycles.worker import WORKER
from interlock.store.records import Query
from interlock.wire.filter_parts import gather, instant, is_one_of
from interlock.wire.filter_words import Vocabulary, Word
from interlock.wire.wanted import LOOKED_AT, Said, Wanted, check_possible, common_parts, state_of
from interlock.wire.workers import WorkerView

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
    """Which workers are meant; empty parts do not filter."""

    machine = WORKER
    names: tuple[str, ...] = ()
    workspaces: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    """The worker takes jobs of one of them."""

    def selection(self, now: datetime, *, limit: int = 100, cursor: str = "") -> WorkerSelection:
        """What to ask a store for, and what has to be looked at afterwards."""
        query = Query(
            kind=WORKER.name,
            states=self.asked_states,
            queue=self.workspaces[0] if len(self.workspaces) == 1 else None,
            parent=self.names[0] if len(self.names) == 1 else None,
            labels=self.sure_labels,
            since=instant(self.since, now),
            until=instant(self.until, now),
            limit=limit,
            cursor=cursor,
            within=LOOKED_AT,
        )
        return WorkerSelection(self, query)

    def own_words(self) -> Iterator[Said]:
        """Names, workspaces and queues."""
        yield from (("name", self.names), ("workspace", self.workspaces), ("queue", self.queues))


@dataclass(frozen=True, slots=True)
class WorkerSelection:
    """A filter at a moment: a question to the store, and a test for what the store cannot answer."""

    filter: WorkerFilter
    query: Query

    def keeps(self, view: WorkerView) -> bool:
        """Whether a worker is meant."""
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
    """The filter that somebody has typed; what is wrong is named with its place."""
    parts = gather(text, WORKERS, _checked)
    found = WorkerFilter(
        names=parts.names.get("name", ()),
        workspaces=parts.names.get("workspace", ()),
        queues=parts.names.get("queue", ()),
        **common_parts(parts),
    )
    check_possible(found, text)
    return found


def _checked(word: Word) -> tuple[str, ...]:
    if word.key != "state":
        return word.values
    return tuple(state_of(word, name, WORKER) for name in word.values)
