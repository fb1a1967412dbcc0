"""Create records of declared kinds, send them events, show and watch them, on a store or through a server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec
import typer

from interlock.cli import output, project
from interlock.cli.connection import actor, connected
from interlock.cli.journal import entries_sheet
from interlock.cli.machine_names import load_kinds
from interlock.cli.nouns.job_submit import typed_arguments
from interlock.cli.output import Sheet, print_line, print_struct, shown
from interlock.client_resources import RecordsClient
from interlock.errors import InvalidArguments, UnknownState
from interlock.remote import is_server
from interlock.remote.reach import Reach
from interlock.store.records import Entry
from interlock.text import harmless
from interlock.wire.records import RecordExplanation, StoredRecord

T = TypeVar("T")

NOT_IN_TIME = 5


class RecordCommands:
    """The commands about records, for one store and one form of output."""

    def __init__(self, store: str | None, kinds: Sequence[str] | None, *, as_json: bool) -> None:
        self._here = project.load(store, kinds=kinds)
        self._as_json = as_json
        self._terminal = output.on_terminal()

    def kinds(self) -> None:
        """Print the kinds."""
        found = self._connected(lambda port: port.here.records.kinds())
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
        data = _data(words)

        async def work(port: Reach) -> StoredRecord:
            return await port.here.records.create(
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
        data = _data(words)

        async def work(port: Reach) -> StoredRecord:
            return await port.here.records.send(
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

        async def work(port: Reach) -> tuple[StoredRecord, datetime]:
            return await port.here.records.get(kind, record_id), await port.now()

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
        where = _data(words)

        async def work(port: Reach) -> tuple[tuple[list[StoredRecord], str], datetime]:
            found = await port.here.records.find(
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
        columns = ("id", "state", "version", "updated", "deadline", "labels")
        spare = ("labels", "deadline")
        output.print_sheets([Sheet(kind, f"Records of {kind}", columns, rows, spare=spare)])
        if after:
            output.print_more(after)
        elif not records:
            typer.echo(f"No record of {kind} matches.", err=True)

    def history(self, kind: str, record_id: str) -> None:
        """Print every transition of a record."""

        async def work(port: Reach) -> tuple[list[Entry], datetime]:
            return await port.here.records.history(kind, record_id), await port.now()

        entries, now = self._connected(work)
        if self._as_json:
            print_struct(entries)
            return
        title = f"{kind} {record_id}"
        sheet = entries_sheet(title, entries, now, terminal=self._terminal, versions=True)
        output.print_sheets([sheet])

    def explain(self, kind: str, record_id: str) -> None:
        """Print the reason a record waits."""

        async def work(port: Reach) -> tuple[RecordExplanation, datetime]:
            return await port.here.records.explain(kind, record_id), await port.now()

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
        states = _names(until)

        async def work(port: Reach) -> int:
            door: RecordsClient[Any] = RecordsClient(kind, lambda: port.here, _known, port.recover, actor())
            known = next((each.states for each in await port.here.records.kinds() if each.name == kind), ())
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

    def _connected(self, work: Callable[[Reach], Awaitable[T]]) -> T:
        declared = () if is_server(self._here.url) else load_kinds(self._here.kinds)

        async def run() -> T:
            async with connected(self._here, declared) as reach:
                return await work(reach)

        return asyncio.run(run())


async def _known(_: object) -> None:
    """Return the project with its kinds loaded, before the store is opened."""


def _line(record: StoredRecord) -> str:
    return f"{record.kind} {record.id} is {record.state} (version {record.version})"


def _data(words: Sequence[str]) -> dict[str, Any]:
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
    data = record.data
    plain = msgspec.json.decode(data) if isinstance(data, msgspec.Raw) else data
    return list(plain.items()) if isinstance(plain, dict) else []


def _cell(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
