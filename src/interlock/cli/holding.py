"""What the commands about workers do: find those that are meant, show them, and hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

import typer

from interlock.cli import job_sheets, printing, worker_sheets
from interlock.cli.answers import print_struct
from interlock.cli.connecting import actor, ask
from interlock.cli.many import Many, part_of, too_many
from interlock.cli.steps import StepShown, steps_in
from interlock.lifecycles.worker import WORKER
from interlock.remote.interfaces import Reach, Services
from interlock.remote.workers import WorkersApi
from interlock.store.records import Query
from interlock.systems.supervisor.search import LIVING, MAX_SCANNED, found_workers, meant
from interlock.systems.supervisor.workers import unknown_worker
from interlock.wire.worker_filters import WorkerFilter, read_worker_filter
from interlock.wire.workers import WorkerView


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
    printing.print_sheets([worker_sheets.list_sheet(views, now, terminal=printing.on_terminal())])
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
        printing.print_sheets([worker_sheets.worker_sheet(view, now, terminal=printing.on_terminal())])


def history(store: str | None, text: str, *, as_json: bool) -> None:
    """Print every step of a worker."""

    async def work(port: Reach) -> list[StepShown]:
        view = await _named(port.here.workers, text)
        return list(steps_in(await port.here.workers.history(view.id)))

    steps = ask(store, work)
    if as_json:
        print_struct(steps)
    else:
        printing.print_sheets([job_sheets.history_sheet(steps, terminal=printing.on_terminal())])


def carry_out(
    store: str | None, order: Order, words: Sequence[str], yes: bool, dry_run: bool, as_json: bool
) -> int:
    """Do it with all workers that are meant; the answer is the exit code."""
    by_filter = any(":" in word for word in words)

    async def choose(port: Reach) -> list[WorkerView]:
        if by_filter:
            return await _found(port, meant(read_worker_filter(" ".join(words)), order.verb))
        named = [await _named(port.here.workers, word) for word in words]
        return list({view.id: view for view in named}.values())

    async def act(place: Services, worker_id: str) -> WorkerView:
        return await order.carry_out(place.workers, worker_id)

    many = Many("worker", order.verb, by_filter, choose, act, worker_sheets.line, worker_sheets.list_sheet)
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
