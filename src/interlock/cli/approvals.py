"""`interlock approval …`: what waits for a person, and the answers.

Each command imports what it needs when it runs, so that `--help` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from interlock.cli import completion
from interlock.cli.forms import RecordsCommand
from interlock.cli.options import Cursor, Json, Limit, Place, RequestId, examples

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from interlock.cli.output import Sheet
    from interlock.wire.waits import ApprovalView

ApprovalId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="Id of the approval, or of the job if one approval of it waits.",
        autocompletion=completion.ids,
    ),
]
Comment = Annotated[str, typer.Option(metavar="TEXT", help="Comment, for the handler and the journal.")]

app: typer.Typer = typer.Typer(
    help="List, approve and reject requests of jobs.", no_args_is_help=True, rich_markup_mode=None
)


@app.callback()
def approval() -> None:
    """List, approve and reject requests of jobs."""


@app.command(
    "list",
    cls=RecordsCommand,
    epilog=examples("approval list", "approval list --all", "approval list --job j_0a4e98fa6cab"),
)
def list_approvals(
    everything: Annotated[bool, typer.Option("--all", help="Also those that do not wait any more.")] = False,
    job: Annotated[str, typer.Option(metavar="ID", help="Only those of this job.")] = "",
    limit: Limit = 50,
    cursor: Cursor = "",
    store: Place = None,
    as_json: Json = False,
) -> None:
    """List approvals that jobs wait for, newest first."""
    from interlock.cli import output
    from interlock.cli.connection import run_connected
    from interlock.remote.reach import Reach

    async def work(reach: Reach) -> tuple[list[ApprovalView], str, datetime]:
        found, more = await reach.here.waits.find(ended=everything, job_id=job, limit=limit, cursor=cursor)
        return found, more, await reach.now()

    found, more, now = run_connected(store, work)
    if as_json:
        output.print_struct({"approvals": found, "cursor": more})
        return
    output.print_sheets([_sheet(found, now)])
    if more:
        output.print_more(more)
    elif not found:
        typer.echo("No job waits for an approval.", err=True)


@app.command("show", cls=RecordsCommand, epilog=examples("approval show j_0a4e98fa6cab.approval.1"))
def show(approval_id: ApprovalId, store: Place = None, as_json: Json = False) -> None:
    """Show an approval: the question, its approvers, and the answer."""
    from interlock.cli import output
    from interlock.cli.connection import run_connected
    from interlock.remote.reach import Reach

    async def work(reach: Reach) -> tuple[ApprovalView, datetime]:
        return await reach.here.waits.get(approval_id), await reach.now()

    view, now = run_connected(store, work)
    if as_json:
        output.print_struct(view)
        return
    terminal = output.on_terminal()
    rows = [
        ("id", view.id),
        ("state", view.state),
        ("question", view.question),
        ("job", view.job_id),
        ("task", view.task),
        ("run", view.run_id or ""),
        ("approvers", ", ".join(view.approvers) or f"all with the role {view.role}"),
        ("asked", output.shown(view.asked_at, now, terminal=terminal)),
        ("times out", output.shown(view.until, now, terminal=terminal)),
        ("by", view.by),
        ("comment", view.comment),
        ("answered", output.shown(view.answered_at, now, terminal=terminal)),
    ]
    facts = [(what, value) for what, value in rows if value]
    output.print_sheets([output.Sheet("approval", "", ("what", "value"), facts)])


@app.command(
    "approve",
    epilog=examples(
        "approval approve j_0a4e98fa6cab.approval.1", "approval approve j_0a4e98fa6cab --comment 'looks good'"
    ),
)
def approve(
    approval_id: ApprovalId,
    comment: Comment = "",
    request_id: RequestId = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Approve a request of a job; the job continues."""
    _answer("approve", approval_id, comment, request_id, store, as_json=as_json)


@app.command("reject", epilog=examples("approval reject j_0a4e98fa6cab --comment 'not on a Friday'"))
def reject(
    approval_id: ApprovalId,
    comment: Comment = "",
    request_id: RequestId = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Reject a request of a job; its handler gets the answer."""
    _answer("reject", approval_id, comment, request_id, store, as_json=as_json)


def _answer(
    verb: str, approval_id: str, comment: str, request_id: str | None, store: str | None, *, as_json: bool
) -> None:
    from interlock.cli.connection import actor, run_connected
    from interlock.cli.output import print_struct
    from interlock.remote.reach import Reach

    async def work(reach: Reach) -> ApprovalView:
        waits = reach.here.waits
        reply = waits.approve if verb == "approve" else waits.reject
        return await reply(approval_id, comment=comment, actor=actor(), request_id=request_id)

    view = run_connected(store, work)
    if as_json:
        print_struct(view)
    else:
        typer.echo(f"{view.id}\t{view.state}")


def send_signal(
    store: str | None, job: str, name: str, data: str | None, request_id: str | None, *, as_json: bool
) -> None:
    """Send a signal to a job, and print what became of it."""
    import sys

    import msgspec

    from interlock.cli.connection import actor, run_connected
    from interlock.cli.job_views import whole_id
    from interlock.cli.output import print_struct
    from interlock.remote.reach import Reach
    from interlock.wire.waits import SignalView

    text = sys.stdin.buffer.read() if data == "-" else (data or "null").encode(errors="surrogateescape")

    async def work(reach: Reach) -> SignalView:
        job_id = await whole_id(reach, job)
        raw = msgspec.Raw(text)
        return await reach.here.waits.signal(job_id, name, raw, actor=actor(), request_id=request_id)

    view = run_connected(store, work)
    if as_json:
        print_struct(view)
    else:
        typer.echo(f"{view.job_id}\t{view.name}\t{view.state}")


def _sheet(views: Iterable[ApprovalView], now: datetime) -> Sheet:
    from interlock.cli.output import Sheet, on_terminal, shown

    terminal = on_terminal()
    rows = [
        (
            view.id,
            view.state,
            view.question,
            view.task,
            view.queue,
            shown(view.asked_at, now, terminal=terminal),
            shown(view.until, now, terminal=terminal),
            view.by,
        )
        for view in views
    ]
    columns = ("id", "state", "question", "task", "queue", "asked", "times out", "by")
    return Sheet("approval", "", columns, rows, one_line=True, spare=("queue", "by"))
