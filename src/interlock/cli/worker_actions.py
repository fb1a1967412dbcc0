"""Show workers, pause, resume, drain and terminate them, and lift a quarantine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import typer

from interlock.cli import job_views, output
from interlock.cli.bulk_actions import BulkAction, part_of, too_many
from interlock.cli.connection import actor, ask
from interlock.cli.journal import StepShown, steps_in
from interlock.cli.output import Sheet, ago, iso, print_struct, shown
from interlock.lifecycles.worker import WORKER
from interlock.remote.interfaces import Reach, Services
from interlock.remote.workers import WorkersApi
from interlock.store.records import Query
from interlock.systems.supervisor.workers import (
    LIVING,
    MAX_SCANNED,
    found_workers,
    matching_workers,
    unknown_worker,
)
from interlock.wire.filters import WorkerFilter, read_worker_filter
from interlock.wire.workers import StandingView, WorkerView

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


@dataclass(frozen=True, slots=True)
class Order:
    """What shall be done with each worker."""

    verb: str
    reason: str
    request_id: str | None
    more: dict[str, bool] = field(default_factory=dict)

    async def carry_out(self, workers: WorkersApi, worker_id: str) -> WorkerView:
        """Do it with one."""
        request_id = part_of(self.request_id, worker_id)
        done: WorkerView = await getattr(workers, self.verb)(
            worker_id, reason=self.reason, actor=actor(), request_id=request_id, **self.more
        )
        return done


def list_workers(store: str | None, words: Sequence[str], *, everything: bool, as_json: bool) -> None:
    """Print the workers that match."""
    wanted = read_worker_filter(" ".join(words))
    if not wanted.states and not wanted.ids and not everything:
        wanted = wanted.among(LIVING)

    async def work(port: Reach) -> tuple[list[WorkerView], datetime]:
        return await _found(port, wanted), await port.now()

    views, now = ask(store, work)
    if as_json:
        print_struct(views)
        return
    output.print_sheets([list_sheet(views, now, terminal=output.on_terminal())])
    if not views:
        typer.echo(
            "No worker matches." if everything else "No worker that lives matches; see --all.", err=True
        )


def show(store: str | None, text: str, *, as_json: bool) -> None:
    """Print one worker."""

    async def work(port: Reach) -> tuple[WorkerView, datetime]:
        view = await _named(port.here.workers, text)
        return await port.here.workers.get(view.id), await port.now()  # a list leaves tasks out

    view, now = ask(store, work)
    if as_json:
        print_struct(view)
    else:
        output.print_sheets([worker_sheet(view, now, terminal=output.on_terminal())])


def history(store: str | None, text: str, *, as_json: bool) -> None:
    """Print every step of a worker."""

    async def work(port: Reach) -> list[StepShown]:
        view = await _named(port.here.workers, text)
        return list(steps_in(await port.here.workers.history(view.id)))

    steps = ask(store, work)
    if as_json:
        print_struct(steps)
    else:
        output.print_sheets([job_views.history_sheet(steps, terminal=output.on_terminal())])


def carry_out(
    store: str | None, order: Order, words: Sequence[str], yes: bool, dry_run: bool, as_json: bool
) -> int:
    """Do it with all workers that are meant; the answer is the exit code."""
    by_filter = any(":" in word for word in words)

    async def choose(port: Reach) -> list[WorkerView]:
        if by_filter:
            return await _found(port, matching_workers(read_worker_filter(" ".join(words)), order.verb))
        named = [await _named(port.here.workers, word) for word in words]
        return list({view.id: view for view in named}.values())

    async def act(place: Services, worker_id: str) -> WorkerView:
        return await order.carry_out(place.workers, worker_id)

    many = BulkAction("worker", order.verb, by_filter, choose, act, line, list_sheet)
    return many.carry_out(store, yes=yes, dry_run=dry_run, as_json=as_json)


async def _named(workers: WorkersApi, text: str) -> WorkerView:
    """The worker with that id, or the newest life under that name, one that lives if there is one."""
    if text.startswith("w_"):
        return await workers.get(text)
    for states in (LIVING, ()):
        views, _ = await workers.find(Query(kind=WORKER.name, parent=text, states=states, limit=1))
        if views:
            return views[0]
    raise unknown_worker(text)


async def _found(port: Reach, wanted: WorkerFilter) -> list[WorkerView]:
    found = await found_workers(port.here.workers, wanted, await port.now())
    if found.more:
        raise too_many("worker", wanted, MAX_SCANNED, keys="since:, until:, name: or state:")
    return found.views


QUARANTINE_COLUMNS = ("runner", "state", "occasions", "until", "lost")
SHOWN = 3


def show_quarantined(store: str | None, *, as_json: bool) -> None:
    """Print who has lost work lately."""

    async def work(reach: Reach) -> list[StandingView]:
        return await reach.here.quarantine.list()

    found = ask(store, work)
    if as_json:
        print_struct(found)
        return
    output.print_sheets(
        [output.Sheet("runner", "", QUARANTINE_COLUMNS, [_quarantined_row(view) for view in found])]
    )
    for view in found:
        if view.todo:
            typer.echo(f"{view.explanation} {view.todo}", err=True)
    if not found:
        typer.echo("No runner has lost work lately.", err=True)


def lift_quarantine(store: str | None, runner: str, reason: str, *, as_json: bool) -> None:
    """Give it work again."""

    async def work(reach: Reach) -> StandingView:
        return await reach.here.quarantine.lift(runner, actor=actor(), reason=reason)

    view = ask(store, work)
    if as_json:
        print_struct(view)
    else:
        typer.echo(f"{view.runner} is given work again.")


def _quarantined_row(view: StandingView) -> tuple[str, ...]:
    until = iso(view.until) if view.until is not None else ""
    more = f" and {len(view.jobs) - SHOWN} more" if len(view.jobs) > SHOWN else ""
    return view.runner, view.state, str(view.occasions), until, ", ".join(view.jobs[-SHOWN:]) + more
