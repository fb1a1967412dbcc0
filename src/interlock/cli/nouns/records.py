"""Commands `interlock record …`: records of your own kinds, on a store or through a server.

Each command imports its modules when it runs, so that `--help` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from interlock.cli.forms import RecordsCommand
from interlock.cli.options import Cursor, Json, Kinds, Place, Reason, RequestId, epilog, examples
from interlock.errors import InvalidArguments, UnknownState
from interlock.text import harmless

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import datetime

    from interlock.client_resources import RecordsClient
    from interlock.remote.service_connection import ServiceConnection
    from interlock.store.records import Entry
    from interlock.wire.records import RecordExplanation, StoredRecord

Name = Annotated[str, typer.Argument(metavar="KIND", help="Name of the kind, such as order.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="Id of the record.")]
Data = Annotated[
    list[str] | None, typer.Argument(metavar="FIELD=VALUE...", help="Fields, or one JSON object.")
]

COLUMNS = ("id", "state", "version", "updated", "deadline", "labels")
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
    RecordCommands(store, kinds, as_json=as_json).kinds()


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
    RecordCommands(store, kinds, as_json=as_json).create(kind, data or [], record_id, request_id)


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
    commands = RecordCommands(store, kinds, as_json=as_json)
    commands.send(kind, record_id, event, data or [], expected, reason, request_id)


@app.command("get", epilog=examples("record get order order-17", "record get order order-17 --json"))
def get(kind: Name, record_id: Id, kinds: Kinds = None, store: Place = None, as_json: Json = False) -> None:
    """Show a record with its data."""
    RecordCommands(store, kinds, as_json=as_json).get(kind, record_id)


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
    commands = RecordCommands(store, kinds, as_json=as_json)
    commands.find(kind, where or [], state, queue=queue, parent=parent, limit=limit, cursor=cursor)


@app.command("history", cls=RecordsCommand, epilog=examples("record history order order-17"))
def history(
    kind: Name, record_id: Id, kinds: Kinds = None, store: Place = None, as_json: Json = False
) -> None:
    """Show every transition of a record."""
    RecordCommands(store, kinds, as_json=as_json).history(kind, record_id)


@app.command("explain", epilog=examples("record explain order order-17"))
def explain(
    kind: Name, record_id: Id, kinds: Kinds = None, store: Place = None, as_json: Json = False
) -> None:
    """Explain why a record waits, and list the events it accepts."""
    RecordCommands(store, kinds, as_json=as_json).explain(kind, record_id)


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
    commands = RecordCommands(store, kinds, as_json=as_json)
    raise typer.Exit(commands.watch(kind, record_id, until, timeout))


T = TypeVar("T")

NOT_IN_TIME = 5


class RecordCommands:
    """The commands about records, for one store and one form of output."""

    def __init__(self, store: str | None, kinds: Sequence[str] | None, *, as_json: bool) -> None:
        from interlock.cli import output, project

        self._here = project.load(store, kinds=kinds)
        self._as_json = as_json
        self._terminal = output.on_terminal()

    def kinds(self) -> None:
        """Print the kinds."""
        from interlock.cli import output
        from interlock.cli.output import Sheet, print_struct

        found = self._connected(lambda port: port.services.records.kinds())
        if self._as_json:
            print_struct(found)
            return
        rows = [
            (kind.name, event.name, " ".join(event.fields), event.role or "-", event.doc)
            for kind in found
            for event in kind.events
        ]
        output.print_sheets([Sheet("kind", "Kinds", ("kind", "event", "fields", "role", "about"), rows)])
        if not found:
            typer.echo(
                'No kinds. Name their modules with --kinds, or kinds = ["…"] in interlock.toml.', err=True
            )

    def create(self, kind: str, words: Sequence[str], record_id: str, request_id: str | None) -> None:
        """Create a record, and print its id."""
        from interlock.cli.connection import actor
        from interlock.cli.output import print_struct

        data = _data(words)

        async def work(port: ServiceConnection) -> StoredRecord:
            return await port.services.records.create(
                kind, data, record_id=record_id, actor=actor(), request_id=request_id
            )

        made = self._connected(work)
        if self._as_json:
            print_struct(made)
        else:
            typer.echo(made.id)

    def send(
        self,
        kind: str,
        record_id: str,
        event: str,
        words: Sequence[str],
        expected: int | None,
        reason: str,
        request_id: str | None,
    ) -> None:
        """Send an event, and print where the record is now."""
        from interlock.cli.connection import actor
        from interlock.cli.output import print_struct

        data = _data(words)

        async def work(port: ServiceConnection) -> StoredRecord:
            return await port.services.records.send(
                kind,
                record_id,
                event,
                data,
                expected=expected,
                reason=reason,
                actor=actor(),
                request_id=request_id,
            )

        sent = self._connected(work)
        if self._as_json:
            print_struct(sent)
        else:
            typer.echo(_line(sent))

    def get(self, kind: str, record_id: str) -> None:
        """Print a record with its data."""
        from interlock.cli import output
        from interlock.cli.output import Sheet, print_struct, shown

        async def work(port: ServiceConnection) -> tuple[StoredRecord, datetime]:
            return await port.services.records.get(kind, record_id), await port.now()

        record, now = self._connected(work)
        if self._as_json:
            print_struct(record)
            return
        facts = [
            ("state", record.state),
            ("version", str(record.version)),
            ("created", shown(record.created_at, now, terminal=self._terminal)),
            ("updated", shown(record.updated_at, now, terminal=self._terminal)),
            ("deadline", shown(record.deadline_at, now, terminal=self._terminal)),
            ("accepts", ", ".join(record.accepts)),
            *((f"data.{name}", harmless(_cell(value))) for name, value in _fields(record)),
        ]
        rows = [(name, value) for name, value in facts if value]
        output.print_sheets([Sheet("fact", f"{kind} {record.id}", ("name", "value"), rows)])

    def find(
        self,
        kind: str,
        words: Sequence[str],
        states: str,
        *,
        queue: str,
        parent: str,
        limit: int,
        cursor: str,
    ) -> None:
        """Print a page of records."""
        from interlock.cli import output
        from interlock.cli.output import Sheet, print_struct, shown

        where = _data(words)

        async def work(port: ServiceConnection) -> tuple[tuple[list[StoredRecord], str], datetime]:
            found = await port.services.records.find(
                kind,
                states=_names(states),
                where=where,
                queue=queue,
                parent=parent,
                limit=limit,
                cursor=cursor,
            )
            return found, await port.now()

        (records, after), now = self._connected(work)
        if self._as_json:
            print_struct({"records": records, "cursor": after})
            return
        rows = [
            (
                each.id,
                each.state,
                str(each.version),
                shown(each.updated_at, now, terminal=self._terminal),
                shown(each.deadline_at, now, terminal=self._terminal),
                harmless(" ".join(each.labels)),
            )
            for each in records
        ]
        spare = ("labels", "deadline")
        output.print_sheets([Sheet(kind, f"Records of {kind}", COLUMNS, rows, spare=spare)])
        if after:
            output.print_more(after)
        elif not records:
            typer.echo(f"No record of {kind} matches.", err=True)

    def history(self, kind: str, record_id: str) -> None:
        """Print every transition of a record."""
        from interlock.cli import output
        from interlock.cli.journal import entries_sheet
        from interlock.cli.output import print_struct

        async def work(port: ServiceConnection) -> tuple[list[Entry], datetime]:
            return await port.services.records.history(kind, record_id), await port.now()

        entries, now = self._connected(work)
        if self._as_json:
            print_struct(entries)
            return
        title = f"{kind} {record_id}"
        sheet = entries_sheet(title, entries, now, terminal=self._terminal, versions=True)
        output.print_sheets([sheet])

    def explain(self, kind: str, record_id: str) -> None:
        """Print the reason a record waits."""
        from interlock.cli.output import print_struct, shown

        async def work(port: ServiceConnection) -> tuple[RecordExplanation, datetime]:
            return await port.services.records.explain(kind, record_id), await port.now()

        explanation, now = self._connected(work)
        if self._as_json:
            print_struct(explanation)
            return
        typer.echo(f"{kind} {explanation.id} is {explanation.state}: {explanation.sentence}")
        if explanation.turn:
            typer.echo(f"  turn      {explanation.turn}")
        if explanation.deadline_at is not None:
            at = shown(explanation.deadline_at, now, terminal=self._terminal)
            typer.echo(f"  deadline  {at}: {explanation.deadline_event}")
        for event in explanation.accepts:
            fields = "".join(f" {name}=…" for name in event.fields)
            typer.echo(f"  send      interlock record send {kind} {explanation.id} {event.name}{fields}")

    def watch(self, kind: str, record_id: str, until: str, timeout_s: float | None) -> int:
        """Print a record after every change; return the exit code."""
        import asyncio

        from interlock.cli.connection import actor
        from interlock.cli.output import print_line
        from interlock.client_resources import RecordsClient

        states = _names(until)

        async def work(port: ServiceConnection) -> int:
            door: RecordsClient[Any] = RecordsClient(
                kind, lambda: port.services, _known, port.recover, actor()
            )
            known = next(
                (each.states for each in await port.services.records.kinds() if each.name == kind), ()
            )
            if wrong := [name for name in states if known and name not in known]:
                raise UnknownState(wrong[0], known, where=kind)
            try:
                async with asyncio.timeout(timeout_s):
                    async for record in door.watch(record_id):
                        print_line(record) if self._as_json else typer.echo(_line(record))
                        if record.state in states:
                            break
            except TimeoutError:
                typer.echo(f"The {kind} {record_id} has not ended after {timeout_s:g} s.", err=True)
                return NOT_IN_TIME
            return 0

        return self._connected(work)

    def _connected(self, work: Callable[[ServiceConnection], Awaitable[T]]) -> T:
        import asyncio

        from interlock.cli.connection import connected
        from interlock.cli.machine_names import load_kinds
        from interlock.remote import is_server

        declared = () if is_server(self._here.url) else load_kinds(self._here.kinds)

        async def run() -> T:
            async with connected(self._here, declared) as connection:
                return await work(connection)

        return asyncio.run(run())


async def _known(_: object) -> None:
    """Return the project with its kinds loaded, before the store is opened."""


def _line(record: StoredRecord) -> str:
    return f"{record.kind} {record.id} is {record.state} (version {record.version})"


def _data(words: Sequence[str]) -> dict[str, Any]:
    import msgspec

    from interlock.cli.nouns.job_submit import typed_arguments

    arguments = typed_arguments(words)
    if isinstance(arguments, dict):
        return arguments
    try:
        return msgspec.json.decode(arguments, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise InvalidArguments(
            f"This is not a JSON object: {error}.",
            todo='Write customer=ada amount=40, or \'{"customer": "ada"}\'.',
            facts={"argument": words[0]},
        ) from None


def _fields(record: StoredRecord) -> list[tuple[str, Any]]:
    import msgspec

    data = record.data
    plain = msgspec.json.decode(data) if isinstance(data, msgspec.Raw) else data
    return list(plain.items()) if isinstance(plain, dict) else []


def _cell(value: object) -> str:
    import msgspec

    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
