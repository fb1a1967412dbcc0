"""What `interlock run approve` and `decline` do."""

from __future__ import annotations

import typer

from interlock.cli import run_sheets
from interlock.cli.answers import print_struct
from interlock.cli.connecting import actor, ask
from interlock.cli.run_finding import whole_run_id
from interlock.remote.interfaces import Reach
from interlock.wire.harmless import harmless
from interlock.wire.runs import RunView


def approve(store: str | None, text: str, comment: str, request_id: str | None, *, as_json: bool) -> None:
    """Approve a run, and print how it stands."""

    async def work(port: Reach) -> RunView:
        runs = port.here.runs
        run_id = await whole_run_id(runs, text)
        return await runs.approve(run_id, comment=comment, request_id=request_id, actor=actor())

    _print(ask(store, work), as_json=as_json)


def decline(store: str | None, text: str, reason: str, request_id: str | None, *, as_json: bool) -> None:
    """Decline a run, and print how it stands."""

    async def work(port: Reach) -> RunView:
        runs = port.here.runs
        run_id = await whole_run_id(runs, text)
        return await runs.decline(run_id, reason=reason, request_id=request_id, actor=actor())

    _print(ask(store, work), as_json=as_json)


def _print(view: RunView, *, as_json: bool) -> None:
    if as_json:
        print_struct(view)
    else:
        typer.echo(harmless("\t".join((view.id, view.state, run_sheets.said(view)))))
