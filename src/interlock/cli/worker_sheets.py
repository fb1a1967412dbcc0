"""What is shown of workers, as rows; how they are shown is not decided here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from interlock.cli.printing import Sheet
from interlock.cli.times import ago, iso, shown
from interlock.wire.workers import WorkerView

SHOWN_TASKS = 20


def list_sheet(views: Iterable[WorkerView], now: datetime, *, terminal: bool) -> Sheet:
    """One line for each worker."""
    rows = [
        (
            view.id,
            view.name,
            view.state,
            f"{view.active}/{view.capacity}",
            view.host,
            str(view.pid or ""),
            ", ".join(view.labels),
            shown(view.last_heartbeat_at, now, terminal=terminal),
            said(view),
        )
        for view in views
    ]
    columns = ("id", "name", "state", "busy", "host", "pid", "labels", "heard", "says")
    return Sheet("worker", "", columns, rows, one_line=True, spare=("pid", "labels", "host", "heard"))


def worker_sheet(view: WorkerView, now: datetime, *, terminal: bool) -> Sheet:
    """Everything about one worker."""
    about = [(what, value) for what, value in _about(view, now, terminal=terminal) if value]
    return Sheet("about", "Worker", ("what", "value"), about)


def line(view: WorkerView) -> str:
    """What is said about one in a pipe."""
    return "\t".join((view.id, view.name, view.state, view.reason))


def said(view: WorkerView) -> str:
    """What is going on with it, in a few words."""
    parts = []
    if view.draining and view.completed_at is None:
        parts.append("draining")
    if not view.heeded and view.completed_at is None:
        parts.append("has not heard yet")
    if view.reason:
        parts.append(view.reason)
    return ": ".join(parts)


def _tasks(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_TASKS} more" if len(names) > SHOWN_TASKS else ""
    return ", ".join(names[:SHOWN_TASKS]) + more


def _about(view: WorkerView, now: datetime, *, terminal: bool) -> Iterator[tuple[str, str]]:
    def when(at: datetime | None) -> str:
        return f"{ago(at, now)} ({iso(at)})" if terminal and at else iso(at)

    yield "id", view.id
    yield "name", view.name
    yield "state", view.state
    yield "says", said(view)
    yield "workspace", view.workspace_id
    yield "incarnation", view.incarnation
    yield "where", f"{view.host}, process {view.pid}" if view.pid else view.host
    yield "queues", ", ".join(view.queues)
    yield "labels", ", ".join(view.labels)
    yield "tasks", _tasks(view.tasks or ())
    yield "busy", f"{view.active} of {view.capacity}"
    yield "processed", str(view.processed) if view.processed else ""
    yield "failed", str(view.failed) if view.failed else ""
    yield "registered", when(view.created_at)
    yield "started", when(view.started_at)
    yield "heard", when(view.last_heartbeat_at)
    yield "counts as gone", when(view.deadline_at)
    yield "ended", when(view.completed_at)
    yield "outcome", view.outcome or ""
    yield from view.metadata.items()
