"""What `interlock run cancel` and `rerun` do, for one run or for all that a filter means (`many`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import typer

from interlock.cli import printing, run_sheets
from interlock.cli.answers import print_struct
from interlock.cli.connecting import actor, ask
from interlock.cli.many import Many, part_of
from interlock.cli.run_finding import chosen_runs, filter_in, whole_run_id
from interlock.lifecycles import run
from interlock.remote.interfaces import Reach, RunsApi, Services, Which
from interlock.wire.runs import RerunPreview, RunView


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

    async def carry_out(self, runs: RunsApi, run_id: str) -> RunView:
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

    async def carry_out(self, runs: RunsApi, run_id: str) -> RunView:
        """Ask it to stop."""
        name = part_of(self.request_id, run_id)
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

    async def carry_out(self, runs: RunsApi, run_id: str) -> RunView:
        """Make the new run."""
        name = part_of(self.request_id, run_id)
        return await runs.rerun(run_id, self.which, job=self.job, request_id=name, actor=actor())

    def line(self, view: RunView) -> str:
        """The new id, and nothing else, so that it can be used."""
        return view.id


def carry_out(
    store: str | None, order: Order, words: Sequence[str], yes: bool, dry_run: bool, as_json: bool
) -> int:
    """Do it with all runs that are meant, one after the other; the answer is the exit code."""
    by_filter = filter_in(words) is not None

    async def choose(port: Reach) -> list[RunView]:
        return await chosen_runs(port, words, among=order.states if by_filter else ())

    async def act(place: Services, run_id: str) -> RunView:
        return await order.carry_out(place.runs, run_id)

    many = Many("run", order.verb, by_filter, choose, act, order.line, run_sheets.list_sheet, at_once=1)
    return many.carry_out(store, yes=yes, dry_run=dry_run, as_json=as_json)


def preview(store: str | None, order: Rerun, words: Sequence[str], *, as_json: bool) -> None:
    """Print which jobs of one run a rerun would execute, and which would be kept."""
    if filter_in(words) is not None or len(words) != 1:
        raise typer.BadParameter("names the jobs of one run: give its id", param_hint="--preview")

    async def work(port: Reach) -> RerunPreview:
        run_id = await whole_run_id(port.here.runs, words[0])
        return await port.here.runs.preview(run_id, order.which, job=order.job)

    found = ask(store, work)
    if as_json:
        print_struct(found)
        return
    rows = [(name, "again") for name in found.again] + [(name, "kept") for name in found.kept]
    printing.print_sheets([printing.Sheet("job", "", ("job", "would be"), rows)])
    if found.planned_anew:
        typer.echo("The run has no plan: the planner makes one, and then the jobs are known.", err=True)
