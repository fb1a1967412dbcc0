"""Commands `interlock record …`: records of your own kinds.

Only the declarations are here: each command imports what it needs when it runs, so that `--help` is quick.
"""

from __future__ import annotations

from typing import Annotated

import typer

from interlock.cli.forms import RecordsCommand
from interlock.cli.options import Cursor, Json, Kinds, Place, Reason, RequestId, epilog, examples

Name = Annotated[str, typer.Argument(metavar="KIND", help="Name of the kind, such as order.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="Id of the record.")]
Data = Annotated[
    list[str] | None, typer.Argument(metavar="FIELD=VALUE...", help="Fields, or one JSON object.")
]

_CODES = (
    "\b\nExit codes:\n  0  done\n"
    "  2  refused, by the table or a version, or invalid usage, or the store is unavailable"
)

app: typer.Typer = typer.Typer(
    help="Create records of your own kinds, and send them events.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def record() -> None:
    """Create records of your own kinds, and send them events."""


@app.command("kinds", epilog=examples("record kinds", "record kinds --kinds shop/orders.py --json"))
def list_kinds(kinds: Kinds = None, store: Place = None, as_json: Json = False) -> None:
    """List your kinds of record, with their events."""
    from interlock.cli.nouns import record_actions

    record_actions.RecordCommands(store, kinds, as_json=as_json).kinds()


@app.command(
    "create",
    epilog=epilog(
        _CODES,
        examples(
            "record create order customer=ada amount=40",
            'record create order \'{"customer": "ada", "amount": 40}\' --id order-17',
            "record create order customer=ada amount=40 --request-id cart-17 --json",
        ),
    ),
)
def create(
    kind: Name,
    data: Data = None,
    record_id: Annotated[
        str, typer.Option("--id", metavar="ID", help="Id of the new record (default: random).")
    ] = "",
    request_id: RequestId = None,
    kinds: Kinds = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Create a record in its initial state, and print its id."""
    from interlock.cli.nouns import record_actions

    record_actions.RecordCommands(store, kinds, as_json=as_json).create(
        kind, data or [], record_id, request_id
    )


@app.command(
    "send",
    epilog=epilog(
        _CODES,
        examples(
            "record send order order-17 pay amount=40",
            "record send order order-17 ship tracking=T1 --expected 2",
            "record send order order-17 cancel --reason 'out of stock' --request-id cancel-17",
        ),
    ),
)
def send(
    kind: Name,
    record_id: Id,
    event: Annotated[str, typer.Argument(metavar="EVENT", help="Name of the event.")],
    data: Data = None,
    expected: Annotated[
        int | None,
        typer.Option(metavar="VERSION", min=1, help="Refuse unless the record has this version."),
    ] = None,
    reason: Reason = "",
    request_id: RequestId = None,
    kinds: Kinds = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Send an event to a record; the table of its kind decides."""
    from interlock.cli.nouns import record_actions

    commands = record_actions.RecordCommands(store, kinds, as_json=as_json)
    commands.send(kind, record_id, event, data or [], expected, reason, request_id)


@app.command("get", epilog=examples("record get order order-17", "record get order order-17 --json"))
def get(kind: Name, record_id: Id, kinds: Kinds = None, store: Place = None, as_json: Json = False) -> None:
    """Show a record with its data."""
    from interlock.cli.nouns import record_actions

    record_actions.RecordCommands(store, kinds, as_json=as_json).get(kind, record_id)


@app.command(
    "list",
    cls=RecordsCommand,
    epilog=examples(
        "record list order", "record list order --state placed,paid customer=ada", "record list order --json"
    ),
)
def list_records(
    kind: Name,
    where: Annotated[
        list[str] | None, typer.Argument(metavar="LABEL=VALUE...", help="Values of fields that are labels.")
    ] = None,
    state: Annotated[
        str, typer.Option(metavar="STATES", help="Only records in these states, separated by commas.")
    ] = "",
    queue: Annotated[str, typer.Option(help="Only records in this queue.")] = "",
    parent: Annotated[str, typer.Option(help="Only records with this parent.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Maximum number of records.")] = 50,
    cursor: Cursor = "",
    kinds: Kinds = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """List the records of a kind, newest first."""
    from interlock.cli.nouns import record_actions

    commands = record_actions.RecordCommands(store, kinds, as_json=as_json)
    commands.find(kind, where or [], state, queue=queue, parent=parent, limit=limit, cursor=cursor)


@app.command("history", cls=RecordsCommand, epilog=examples("record history order order-17"))
def history(
    kind: Name, record_id: Id, kinds: Kinds = None, store: Place = None, as_json: Json = False
) -> None:
    """Show every transition of a record."""
    from interlock.cli.nouns import record_actions

    record_actions.RecordCommands(store, kinds, as_json=as_json).history(kind, record_id)


@app.command("explain", epilog=examples("record explain order order-17"))
def explain(
    kind: Name, record_id: Id, kinds: Kinds = None, store: Place = None, as_json: Json = False
) -> None:
    """Explain what a record waits for, and list the events it accepts."""
    from interlock.cli.nouns import record_actions

    record_actions.RecordCommands(store, kinds, as_json=as_json).explain(kind, record_id)


@app.command(
    "watch",
    epilog=epilog(
        "\b\nExit codes:\n  0  it has ended, or is in a state of --until\n  5  it has not ended in time\n"
        "  2  invalid usage, or the store is unavailable",
        examples("record watch order order-17", "record watch order order-17 --until shipped --timeout 60"),
    ),
)
def watch(
    kind: Name,
    record_id: Id,
    until: Annotated[
        str, typer.Option(metavar="STATES", help="Stop in one of these states, separated by commas.")
    ] = "",
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", help="Stop waiting after this time.")
    ] = None,
    kinds: Kinds = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Print a record now and after every change, until it has ended."""
    from interlock.cli.nouns import record_actions

    commands = record_actions.RecordCommands(store, kinds, as_json=as_json)
    raise typer.Exit(commands.watch(kind, record_id, until, timeout))
