"""What `interlock worker quarantined` and `interlock worker lift` do."""

from __future__ import annotations

import typer

from interlock.cli import printing
from interlock.cli.answers import print_struct
from interlock.cli.connecting import actor, ask
from interlock.cli.times import iso
from interlock.remote.interfaces import Reach
from interlock.wire.workers import StandingView

COLUMNS = ("runner", "state", "occasions", "until", "lost")
SHOWN = 3


def show(store: str | None, *, as_json: bool) -> None:
    """Print who has lost work lately."""

    async def work(reach: Reach) -> list[StandingView]:
        return await reach.here.quarantine.list()

    found = ask(store, work)
    if as_json:
        print_struct(found)
        return
    printing.print_sheets([printing.Sheet("runner", "", COLUMNS, [_row(view) for view in found])])
    for view in found:
        if view.todo:
            typer.echo(f"{view.explanation} {view.todo}", err=True)
    if not found:
        typer.echo("No runner has lost work lately.", err=True)


def lift(store: str | None, runner: str, reason: str, *, as_json: bool) -> None:
    """Give it work again."""

    async def work(reach: Reach) -> StandingView:
        return await reach.here.quarantine.lift(runner, actor=actor(), reason=reason)

    view = ask(store, work)
    if as_json:
        print_struct(view)
    else:
        typer.echo(f"{view.runner} is given work again.")


def _row(view: StandingView) -> tuple[str, ...]:
    until = iso(view.until) if view.until is not None else ""
    more = f" and {len(view.jobs) - SHOWN} more" if len(view.jobs) > SHOWN else ""
    return view.runner, view.state, str(view.occasions), until, ", ".join(view.jobs[-SHOWN:]) + more
