"""`interlock queue …`: list queues, pause and resume them.

Each command imports its modules when it runs, so that `--help` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from interlock.cli import completion
from interlock.cli.forms import RecordsCommand
from interlock.cli.options import Json, Place, Reason, examples

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from interlock.cli.output import Sheet
    from interlock.remote.service_connection import ServiceConnection
    from interlock.wire.jobs import QueueHold, QueueView

Name = Annotated[
    str, typer.Argument(metavar="QUEUE", help="Name of the queue.", autocompletion=completion.ids)
]

app: typer.Typer = typer.Typer(
    help="List, pause and resume queues.", no_args_is_help=True, rich_markup_mode=None
)


@app.callback()
def queue() -> None:
    """List, pause and resume queues."""


@app.command(
    "list", cls=RecordsCommand, epilog=examples("queue list", "queue list --json", "queue list | cut -f1,2")
)
def list_queues(store: Place = None, as_json: Json = False) -> None:
    """List queues that are paused or have unfinished jobs."""
    from interlock.cli.verbs import ListPage, Noun, list_records

    async def search(connection: ServiceConnection) -> ListPage[QueueView]:
        return ListPage(await connection.services.queues.list())

    noun: Noun[QueueView] = Noun(name="queue", list_sheet=list_sheet)
    none = "No queue is paused or has unfinished jobs."
    list_records(noun, store, search, as_json=as_json, none=none)


@app.command("pause", epilog=examples("queue pause mail --reason 'the mail server is away'"))
def pause(name: Name, reason: Reason = "", store: Place = None, as_json: Json = False) -> None:
    """Stop starting jobs of a queue; running jobs continue."""
    _hold("pause", store, name, reason, as_json=as_json)


@app.command("resume", epilog=examples("queue resume mail"))
def resume(name: Name, reason: Reason = "", store: Place = None, as_json: Json = False) -> None:
    """Start jobs of a paused queue again."""
    _hold("resume", store, name, reason, as_json=as_json)


def _hold(verb: str, store: str | None, name: str, reason: str, *, as_json: bool) -> None:
    from interlock.cli import verbs
    from interlock.cli.connection import actor
    from interlock.systems.orchestrator.queues import QueueState

    async def work(connection: ServiceConnection) -> QueueHold:
        hold: QueueHold = await getattr(connection.services.queues, verb)(name, reason=reason, actor=actor())
        return hold

    def lines(hold: QueueHold, _: datetime) -> tuple[str]:
        if hold.state == QueueState.PAUSED:
            return (f"The queue {name} is paused: its jobs wait, and running jobs continue.",)
        return (f"The queue {name} is active: its jobs are started.",)

    verbs.act(store, work, lines, as_json=as_json)


def list_sheet(queues: Iterable[QueueView], now: datetime, *, terminal: bool) -> Sheet:
    """Return one row for each queue."""
    from interlock.cli.output import Sheet, shown

    def count(number: int, *, capped: bool) -> str:
        return f"{number}+" if capped and number else str(number)

    rows = [
        (
            each.name,
            count(each.pending, capped=each.capped),
            count(each.running, capped=each.capped),
            shown(each.oldest_created_at, now, terminal=terminal),
            each.state,
        )
        for each in queues
    ]
    return Sheet("queue", "", ("name", "pending", "running", "oldest pending", "state"), rows)
