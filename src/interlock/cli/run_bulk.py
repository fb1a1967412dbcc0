"""What `interlock run cancel` and `rerun` do: find the runs, show them, ask, and do it with each."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import typer

from interlock.cli import printing, project, run_sheets
from interlock.cli.answers import print_line
from interlock.cli.connecting import actor, connected
from interlock.cli.errors import WRONG_QUESTION, tell
from interlock.cli.run_finding import chosen_runs, filter_in
from interlock.errors import InterlockError, InvalidArguments
from interlock.lifecycles import run
from interlock.remote.offering import RunsOffer, Which
from interlock.wire.runs import RunView

PREVIEW = 10


class Order(Protocol):
    """What shall be done with each run."""

    @property
    def verb(self) -> str:
        """What it is called."""
        ...

    @property
    def states(self) -> Sequence[str]:
        """In which states it can be done; a filter is held to them."""
        ...

    async def carry_out(self, runs: RunsOffer, run_id: str) -> RunView:
        """Do it."""
        ...

    def line(self, view: RunView) -> str:
        """What is said about it in a pipe."""
        ...


@dataclass(frozen=True, slots=True)
class Cancel:
    """Ask it to stop."""

    reason: str
    request_id: str | None
    verb: str = "cancel"
    states: Sequence[str] = tuple(str(state) for state in run.RunState if state not in run.SETTLED)

    async def carry_out(self, runs: RunsOffer, run_id: str) -> RunView:
        """Ask it to stop."""
        name = _part_of(self.request_id, run_id)
        return await runs.cancel(run_id, reason=self.reason, request_id=name, actor=actor())

    def line(self, view: RunView) -> str:
        """Its state: it may still be at it."""
        return "\t".join((view.id, view.state, run_sheets.said(view)))


@dataclass(frozen=True, slots=True)
class Rerun:
    """Do it again."""

    which: Which
    job: str
    request_id: str | None
    verb: str = "rerun"
    states: Sequence[str] = tuple(str(state) for state in run.SETTLED)

    async def carry_out(self, runs: RunsOffer, run_id: str) -> RunView:
        """Make the new run."""
        name = _part_of(self.request_id, run_id)
        return await runs.rerun(run_id, self.which, job=self.job, request_id=name, actor=actor())

    def line(self, view: RunView) -> str:
        """The new id, and nothing else, so that it can be used."""
        return view.id


def carry_out(
    store: str | None, order: Order, words: Sequence[str], yes: bool, dry_run: bool, as_json: bool
) -> int:
    """Do it with all runs that are meant; the answer is the exit code."""
    here = project.load(store)
    by_filter = filter_in(words) is not None

    async def choose() -> tuple[list[RunView], datetime]:
        async with connected(here) as port:
            among = order.states if by_filter else ()
            return await chosen_runs(port, words, among=among), await port.now()

    views, now = asyncio.run(choose())
    if not views:
        typer.echo("No run matches.", err=True)
        return 0
    if dry_run or (by_filter and not yes):
        _preview(views, now, as_json=as_json)
        # Nobody holds a connection open while somebody thinks.
        if dry_run or not _agreed(order.verb, len(views)):
            return 0
    return _tell(order, asyncio.run(_done(here, order, views)), as_json=as_json)


async def _done(
    here: project.Project, order: Order, views: Sequence[RunView]
) -> list[tuple[str, RunView | InterlockError]]:
    async with connected(here) as port:
        results: list[tuple[str, RunView | InterlockError]] = []
        for view in views:
            try:
                results.append((view.id, await order.carry_out(port.here.runs, view.id)))
            except InterlockError as error:
                results.append((view.id, error))
        await port.recover()  # no server may be there to pass word on to the jobs
        return results


def _preview(views: Sequence[RunView], now: datetime, *, as_json: bool) -> None:
    if as_json:
        for view in views:
            print_line(view)
        return
    shown = views if not printing.on_terminal() else views[:PREVIEW]
    printing.print_sheets([run_sheets.list_sheet(shown, now, terminal=printing.on_terminal())])
    if len(shown) < len(views):
        typer.echo(f"… and {len(views) - len(shown)} more")


def _agreed(verb: str, number: int) -> bool:
    if not sys.stdin.isatty():
        raise InvalidArguments(
            f"Nothing was done: {number} runs are meant, and nobody can be asked.",
            todo="Say --yes to do it, or --dry-run to only look.",
            facts={"runs": number},
        )
    return typer.confirm(f"{verb.capitalize()} {number} run{'s' if number != 1 else ''}?", err=True)


def _tell(order: Order, results: Sequence[tuple[str, RunView | InterlockError]], *, as_json: bool) -> int:
    """A line for each; of one run alone the error is the answer."""
    if len(results) == 1 and isinstance(results[0][1], InterlockError):
        raise results[0][1]
    code = 0
    for run_id, result in results:
        match result:
            case InterlockError() if as_json:
                print_line({"id": run_id, "error": result.as_dict()})
            case InterlockError():
                tell(result, as_json=False)
            case view if as_json:
                print_line({"id": run_id, "run": view})
            case view:
                typer.echo(order.line(view))
        code = WRONG_QUESTION if isinstance(result, InterlockError) else code
    return code


def _part_of(request_id: str | None, run_id: str) -> str | None:
    """One for each run, so that repeating the whole repeats every part."""
    return None if request_id is None else f"{request_id}.{run_id}"
