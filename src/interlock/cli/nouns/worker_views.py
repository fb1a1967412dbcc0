"""Workers on the command line: search, columns and actions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial

import typer

from interlock.cli import output
from interlock.cli.connection import actor, run_connected
from interlock.cli.output import Sheet, full_time, iso, print_struct, shown
from interlock.cli.verbs import Action, ListPage, Noun, has_filter, list_records, part_of, too_many
from interlock.lifecycles.worker import WORKER
from interlock.remote.interfaces import Services
from interlock.remote.service_connection import ServiceConnection
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
    """Return one row for each worker."""
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
            order_text(view),
        )
        for view in views
    ]
    columns = ("id", "name", "state", "busy", "host", "pid", "labels", "heard", "message")
    return Sheet("worker", "", columns, rows, one_line=True, spare=("pid", "labels", "host", "heard"))


def worker_sheets(view: WorkerView, now: datetime, *, terminal: bool) -> list[Sheet]:
    """Return all tables about one worker."""
    about = [(what, value) for what, value in _facts_of(view, now, terminal=terminal) if value]
    return [Sheet("about", "Worker", ("what", "value"), about)]


def line(view: WorkerView) -> str:
    """Return a worker with its state, for a pipe."""
    return "\t".join((view.id, view.name, view.state, view.reason))


def order_text(view: WorkerView) -> str:
    """Return the current order to a worker and its reason, in a few words."""
    parts = []
    if view.draining and view.completed_at is None:
        parts.append("draining")
    if not view.heeded and view.completed_at is None:
        parts.append("has not received the order yet")
    if view.reason:
        parts.append(view.reason)
    return ": ".join(parts)


def _tasks(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_TASKS} more" if len(names) > SHOWN_TASKS else ""
    return ", ".join(names[:SHOWN_TASKS]) + more


def _facts_of(view: WorkerView, now: datetime, *, terminal: bool) -> Iterator[tuple[str, str]]:
    when = partial(full_time, now=now, terminal=terminal)
    yield "id", view.id
    yield "name", view.name
    yield "state", view.state
    yield ("message" if terminal else "says"), order_text(view)
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


def list_workers(store: str | None, words: Sequence[str], *, everything: bool, as_json: bool) -> None:
    """Print the workers that match."""
    wanted = read_worker_filter(" ".join(words))
    if not wanted.states and not wanted.ids and not everything:
        wanted = wanted.among(LIVING)

    async def search(connection: ServiceConnection) -> ListPage[WorkerView]:
        return ListPage(await _found(connection, wanted))

    none = "" if everything else "No live worker matches; see --all."
    list_records(NOUN, store, search, lambda page: page.views, as_json=as_json, none=none)


async def find_worker(connection: ServiceConnection, text: str) -> WorkerView:
    """Return the worker of an id, or the newest of a name, live ones first."""
    workers = connection.services.workers
    if text.startswith("w_"):
        return await workers.get(text)
    for states in (LIVING, ()):
        views, _ = await workers.find(Query(kind=WORKER.name, parent=text, states=states, limit=1))
        if views:
            return views[0]
    raise unknown_worker(text)


async def _found(port: ServiceConnection, wanted: WorkerFilter) -> list[WorkerView]:
    found = await found_workers(port.services.workers, wanted, await port.now())
    if found.more:
        raise too_many("worker", wanted, MAX_SCANNED, keys="since:, until:, name: or state:")
    return found.views


async def _chosen(
    connection: ServiceConnection, words: Sequence[str], action: Action[WorkerView]
) -> list[WorkerView]:
    if has_filter(words):
        return await _found(connection, matching_workers(read_worker_filter(" ".join(words)), action.verb))
    named = [await find_worker(connection, word) for word in words]
    return list({view.id: view for view in named}.values())


async def _id(connection: ServiceConnection, text: str) -> str:
    return (await find_worker(connection, text)).id


def _order(verb: str, *, reason: str = "", request_id: str | None = None, **more: bool) -> Action[WorkerView]:
    async def act(place: Services, worker_id: str) -> WorkerView:
        change: Callable[..., Awaitable[WorkerView]] = getattr(place.workers, verb)
        key = part_of(request_id, worker_id)
        return await change(worker_id, reason=reason, actor=actor(), request_id=key, **more)

    return Action(verb=verb, act=act, line=line)


NOUN: Noun[WorkerView] = Noun(
    name="worker",
    find=_id,
    get=lambda connection, worker_id: connection.services.workers.get(worker_id),  # a list leaves tasks out
    chosen=_chosen,
    list_sheet=list_sheet,
    sheets=worker_sheets,
    history=lambda connection, worker_id: connection.services.workers.history(worker_id),
    actions={verb: partial(_order, verb) for verb in ("pause", "resume", "terminate", "drain")},
)


QUARANTINE_COLUMNS = ("runner", "state", "occasions", "until", "lost")
SHOWN = 3


def show_quarantined(store: str | None, *, as_json: bool) -> None:
    """Print the runners that have lost work lately."""

    async def work(connection: ServiceConnection) -> list[StandingView]:
        return await connection.services.quarantine.list()

    found = run_connected(store, work)
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
    """Lift the quarantine of a runner."""

    async def work(connection: ServiceConnection) -> StandingView:
        return await connection.services.quarantine.lift(runner, actor=actor(), reason=reason)

    view = run_connected(store, work)
    if as_json:
        print_struct(view)
    else:
        typer.echo(f"{view.runner} receives work again.")


def _quarantined_row(view: StandingView) -> tuple[str, ...]:
    until = iso(view.until) if view.until is not None else ""
    more = f" and {len(view.jobs) - SHOWN} more" if len(view.jobs) > SHOWN else ""
    return view.runner, view.state, str(view.occasions), until, ", ".join(view.jobs[-SHOWN:]) + more
