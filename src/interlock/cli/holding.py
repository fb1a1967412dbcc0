"""What the commands about workers do: find those that are meant, show them, and hold them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

import typer

from interlock.cli import job_sheets, printing, project, worker_sheets
from interlock.cli.answers import print_line, print_struct
from interlock.cli.connecting import actor, ask, connected
from interlock.cli.errors import WRONG_QUESTION, tell
from interlock.cli.steps import StepShown, steps_in
from interlock.errors import InterlockError, InvalidArguments
from interlock.lifecycles import worker
from interlock.lifecycles.worker import WORKER
from interlock.remote.offering import Reach
from interlock.remote.workers import WorkersOffer
from interlock.store.records import Query
from interlock.systems.supervisor.workers import unknown_worker
from interlock.wire.worker_filters import WorkerFilter, read_worker_filter
from interlock.wire.workers import WorkerView

PAGE = 500
_LIVING = tuple(str(state) for state in worker.LIVING)


@dataclass(frozen=True, slots=True)
class Order:
    """What shall be done with each worker."""

    verb: str
    reason: str
    request_id: str | None
    more: dict[str, bool] = field(default_factory=dict)

    async def carry_out(self, workers: WorkersOffer, worker_id: str) -> WorkerView:
        """Do it; each has a request id of its own, so that repeating the whole repeats every part."""
        request_id = None if self.request_id is None else f"{self.request_id}.{worker_id}"
        done: WorkerView = await getattr(workers, self.verb)(
            worker_id, reason=self.reason, actor=actor(), request_id=request_id, **self.more
        )
        return done


def list_workers(store: str | None, words: Sequence[str], *, everything: bool, as_json: bool) -> None:
    """Print the workers that match."""
    wanted = read_worker_filter(" ".join(words))
    if not wanted.states and not wanted.ids and not everything:
        wanted = _among(wanted, _LIVING)

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
        return await _named(port.here.workers, text), await port.now()

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
    here = project.load(store)
    by_filter = any(":" in word for word in words)

    async def choose() -> tuple[list[WorkerView], datetime]:
        async with connected(here) as port:
            if by_filter:
                wanted = _among(read_worker_filter(" ".join(words)), _accepting(order.verb))
                return await _found(port, wanted), await port.now()
            named = [await _named(port.here.workers, word) for word in words]
            return list({view.id: view for view in named}.values()), await port.now()

    views, now = asyncio.run(choose())
    if not views:
        typer.echo("No worker matches.", err=True)
        return 0
    if dry_run or (by_filter and not yes):
        if as_json:
            print_struct(views)
        else:
            printing.print_sheets([worker_sheets.list_sheet(views, now, terminal=printing.on_terminal())])
        if dry_run or not _agreed(order.verb, len(views)):
            return 0

    async def do() -> list[WorkerView | InterlockError]:
        async with connected(here) as port:
            done = await asyncio.gather(*[_one(port.here.workers, order, view.id) for view in views])
            await port.recover()  # no worker may be there to pass word on to the leases of another
            return done

    return _tell(asyncio.run(do()), [view.id for view in views], as_json=as_json)


async def _one(workers: WorkersOffer, order: Order, worker_id: str) -> WorkerView | InterlockError:
    try:
        return await order.carry_out(workers, worker_id)
    except InterlockError as error:
        return error


def _tell(results: Sequence[WorkerView | InterlockError], ids: Sequence[str], *, as_json: bool) -> int:
    """A line for each; of one worker alone the error is the answer."""
    if len(results) == 1 and isinstance(results[0], InterlockError):
        raise results[0]
    code = 0
    for worker_id, result in zip(ids, results, strict=True):
        match result:
            case InterlockError() if as_json:
                print_line({"id": worker_id, "error": result.as_dict()})
            case InterlockError():
                tell(result, as_json=False)
            case view if as_json:
                print_line({"id": worker_id, "worker": view})
            case view:
                typer.echo("\t".join((view.id, view.name, view.state, view.reason)))
        code = WRONG_QUESTION if isinstance(result, InterlockError) else code
    return code


def _agreed(verb: str, number: int) -> bool:
    if not sys.stdin.isatty():
        raise InvalidArguments(
            f"Nothing was done: {number} workers are meant, and nobody can be asked.",
            todo="Say --yes to do it, or --dry-run to only look.",
            facts={"workers": number},
        )
    return typer.confirm(f"{verb.capitalize()} {number} worker{'s' if number != 1 else ''}?", err=True)


async def _named(workers: WorkersOffer, text: str) -> WorkerView:
    """The worker with that id, or the newest life under that name, one that lives if there is one."""
    if text.startswith("w_"):
        return await workers.get(text)
    for states in (_LIVING, ()):
        views, _ = await workers.find(Query(kind=WORKER.name, parent=text, states=states, limit=1))
        if views:
            return views[0]
    raise unknown_worker(text)


async def _found(port: Reach, wanted: WorkerFilter) -> list[WorkerView]:
    selection = wanted.selection(await port.now(), limit=PAGE)
    found: list[WorkerView] = []
    query = selection.query
    while True:
        views, cursor = await port.here.workers.find(query)
        found += [view for view in views if selection.keeps(view)]
        if not cursor:
            return found
        query = wanted.selection(await port.now(), limit=PAGE, cursor=cursor).query


def _among(wanted: WorkerFilter, states: Sequence[str]) -> WorkerFilter:
    """The same workers, but only those in one of these states."""
    every = [str(state) for state in WORKER.states]
    others = tuple(state for state in every if state not in states or state in wanted.other_than)
    return WorkerFilter(
        **{
            **{name: getattr(wanted, name) for name in wanted.__struct_fields__},
            "other_than": others,
        }
    )


def _accepting(verb: str) -> tuple[str, ...]:
    """The states in which the table knows an answer other than no."""
    event = {"pause": worker.Pause, "resume": worker.Resume, "terminate": worker.Terminate}.get(verb)
    if event is None:
        return _LIVING
    return tuple(str(state) for state in WORKER.states if event.name in WORKER.accepts(state))
