"""`interlock approval …`: jobs that wait for a person, and the answers.

Each command imports its modules when it runs, so that `--help` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from interlock.cli import completion
from interlock.cli.forms import RecordsCommand
from interlock.cli.options import Cursor, Json, Limit, Place, RequestId, add_views, examples

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from interlock.cli.output import Sheet
    from interlock.cli.verbs import Noun
    from interlock.remote.service_connection import ServiceConnection
    from interlock.wire.waits import ApprovalView, SignalView

ApprovalId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="Id of the approval, or of a job with one pending approval.",
        autocompletion=completion.ids,
    ),
]
Comment = Annotated[str, typer.Option(metavar="TEXT", help="Comment, for the handler and the journal.")]

app: typer.Typer = typer.Typer(
    help="List, approve and reject requests of jobs.", no_args_is_help=True, rich_markup_mode=None
)


def _noun() -> Noun[ApprovalView]:
    from interlock.cli.verbs import Noun

    return Noun(
        name="approval",
        get=lambda connection, approval_id: connection.services.waits.get(approval_id),
        list_sheet=list_sheet,
        sheets=_sheets,
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
    everything: Annotated[
        bool, typer.Option("--all", help="Include approvals that are no longer pending.")
    ] = False,
    job: Annotated[str, typer.Option(metavar="ID", help="Only approvals of this job.")] = "",
    limit: Limit = 50,
    cursor: Cursor = "",
    store: Place = None,
    as_json: Json = False,
) -> None:
    """List approvals that jobs wait for, newest first."""
    from interlock.cli.verbs import ListPage, list_records

    async def search(connection: ServiceConnection) -> ListPage[ApprovalView]:
        return ListPage(
            *await connection.services.waits.find(ended=everything, job_id=job, limit=limit, cursor=cursor)
        )

    def answer(page: ListPage[ApprovalView]) -> object:
        return {"approvals": page.views, "cursor": page.cursor}

    none = "No job waits for an approval."
    list_records(_noun(), store, search, answer, as_json=as_json, none=none)


add_views(
    app,
    "approval",
    _noun,
    "j_0a4e98fa6cab.approval.1",
    argument=ApprovalId,
    show="Show an approval: the question, its approvers, and the answer.",
)


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
    """Reject a request of a job; its handler receives the answer."""
    _answer("reject", approval_id, comment, request_id, store, as_json=as_json)


def _answer(
    verb: str, approval_id: str, comment: str, request_id: str | None, store: str | None, *, as_json: bool
) -> None:
    from interlock.cli import verbs
    from interlock.cli.connection import actor

    async def work(connection: ServiceConnection) -> ApprovalView:
        waits = connection.services.waits
        reply = waits.approve if verb == "approve" else waits.reject
        return await reply(approval_id, comment=comment, actor=actor(), request_id=request_id)

    verbs.act(store, work, lambda view, _: [f"{view.id}\t{view.state}"], as_json=as_json)


def send_signal(
    store: str | None, job: str, name: str, data: str | None, request_id: str | None, *, as_json: bool
) -> None:
    """Send a signal to a job, and print what became of it."""
    import sys

    import msgspec

    from interlock.cli import verbs
    from interlock.cli.connection import actor
    from interlock.cli.nouns.job_views import whole_id

    text = sys.stdin.buffer.read() if data == "-" else (data or "null").encode(errors="surrogateescape")

    async def work(connection: ServiceConnection) -> SignalView:
        job_id = await whole_id(connection, job)
        raw = msgspec.Raw(text)
        return await connection.services.waits.signal(job_id, name, raw, actor=actor(), request_id=request_id)

    verbs.act(store, work, lambda view, _: [f"{view.job_id}\t{view.name}\t{view.state}"], as_json=as_json)


def list_sheet(views: Sequence[ApprovalView], now: datetime, *, terminal: bool) -> Sheet:
    from interlock.cli.output import Sheet, shown

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


def _sheets(view: ApprovalView, now: datetime, *, terminal: bool) -> list[Sheet]:
    from interlock.cli.output import Sheet, shown

    rows = [
        ("id", view.id),
        ("state", view.state),
        ("question", view.question),
        ("job", view.job_id),
        ("task", view.task),
        ("run", view.run_id or ""),
        ("approvers", ", ".join(view.approvers) or f"all with the role {view.role}"),
        ("asked", shown(view.asked_at, now, terminal=terminal)),
        ("times out", shown(view.until, now, terminal=terminal)),
        ("by", view.by),
        ("comment", view.comment),
        ("answered", shown(view.answered_at, now, terminal=terminal)),
    ]
    return [Sheet("approval", "", ("what", "value"), [row for row in rows if row[1]])]
