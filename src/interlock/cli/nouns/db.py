"""Commands `interlock db …`: maintain the database, and empty the one of `interlock dev`.

Each command imports its modules when it runs, so that `--help` is quick.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from interlock.cli.options import FOUND_SOMETHING, Json, Store, examples, parse_duration
from interlock.errors import BadStoreUrl, ForeignSchema, StoreUnavailable
from interlock.text import counted

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import timedelta

    from interlock.cli.output import Sheet
    from interlock.engine.audit import Audit
    from interlock.store import contract
    from interlock.store.catalogue import Catalogue
    from interlock.store.contract import ServerConnections, StoreStatus
    from interlock.systems.kinds import Lifecycles

app: typer.Typer = typer.Typer(
    help="Migrate, inspect, prune, restore and audit the database.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="""\b
URL is one of:
  sqlite:///interlock.db         a file here (the default without interlock.toml)
  postgresql://user@host/name    PostgreSQL 13 or newer
  redis://host:6379/0            Redis 6.2 or newer, or Valkey

\b
Exit codes:
  0  success
  1  the audit found a fault
  2  invalid usage, or the database is unavailable""",
)


@app.command("migrate", epilog=examples("db migrate", "db migrate --store postgresql://ci@db/interlock"))
def migrate(store: Store = None, as_json: Json = False) -> None:
    """Migrate the schema; safe to repeat, and to run on many hosts."""
    from interlock.cli import output

    status = read_status(store)
    if as_json:
        output.print_json({"url": status.url, "schema_version": status.schema_version})
    else:
        typer.echo(f"{status.url} is at schema version {status.schema_version}.")


@app.command("status", epilog=examples("db status", "db status --json"))
def show_status(store: Store = None, as_json: Json = False) -> None:
    """Show schema version, size and number of records."""
    from interlock.cli import output

    status = read_status(store)
    if as_json:
        output.print_json(status_entry(status))
    else:
        output.print_sheets(status_sheets(status))


@app.command(
    "prune",
    epilog=examples(
        "db prune --older-than 30d",
        "db prune --kind job --older-than 12h --json",
        "db prune --queue mail --older-than 1d",
    ),
)
def prune(
    older_than: Annotated[
        str, typer.Option(metavar="AGE", help="Minimum time since the last change: 90s, 15m, 12h, 30d, 4w.")
    ],
    kind: Annotated[str | None, typer.Option(help="Only records of this kind.")] = None,
    queue: Annotated[str | None, typer.Option(help="Only jobs of this queue.")] = None,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Remove records that ended long ago, with their journal."""
    from interlock.cli import output

    age = parse_duration(older_than)
    named = kind or "job"
    pruned = prune_kinds(store, kind, age) if queue is None else prune_queue(store, named, queue, age)
    if as_json:
        output.print_json(pruned)
    else:
        output.print_sheets([pruned_sheet(pruned, terminal=output.on_terminal())])
    if not as_json and not any(any(counts.values()) for counts in pruned.values()):
        typer.echo(f"Nothing was removed: no record has ended more than {older_than} ago.", err=True)


@app.command("vacuum", epilog=examples("db vacuum", "db vacuum --store sqlite:///ci.db --json"))
def vacuum(store: Store = None, as_json: Json = False) -> None:
    """Return the space of pruned records to the file system."""
    from interlock.cli import output

    url, freed = vacuum_store(store)
    if as_json:
        output.print_json({"url": url, "freed_bytes": freed})
    elif freed is None:
        typer.echo(f"{url}: the server frees its space by itself.")
    else:
        typer.echo(f"{url} is {freed:,} bytes smaller.")


@app.command(
    "restored", epilog=examples("db restored", "db restored --fence 4284014592131203 --store sqlite:///ci.db")
)
def restored(
    fence: Annotated[
        int,
        typer.Option(metavar="FENCE", min=0, help="Largest fencing token that an outside system has seen."),
    ] = 0,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Raise the epoch after restoring a backup.

    Without it, fencing tokens that were issued after the backup would be issued again.
    """
    from interlock.cli import output

    url, epoch = raise_epoch(store, fence)
    if as_json:
        output.print_json({"url": url, "epoch": epoch})
    else:
        typer.echo(f"{url} is in epoch {epoch}; its fencing tokens are larger than all before.")


@app.command("audit", epilog=examples("db audit", "db audit --kind job --json"))
def audit(
    kind: Annotated[str | None, typer.Option(help="Only records of this kind.")] = None,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Compare the journal with the records; exit with 1 on a fault."""
    from interlock.cli import output

    found = audit_store(store, kind)
    if as_json:
        output.print_json(audit_entry(found))
    else:
        output.print_sheets(audit_sheets(found))
    if found.faults:
        raise typer.Exit(FOUND_SOMETHING)


T = TypeVar("T")


def run_with_store(
    url: str | None, work: Callable[[contract.Store], Awaitable[T]], kinds: Catalogue | None = None
) -> T:
    """Open the store of this project, do the work, and close it."""
    import asyncio

    from interlock.cli import project
    from interlock.cli.connection import store_url
    from interlock.store.urls import store_for
    from interlock.systems.catalogue import CATALOGUE

    async def run() -> T:
        store = store_for(store_url(project.load(url)), CATALOGUE if kinds is None else kinds)
        try:
            await store.open()
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def read_status(url: str | None) -> StoreStatus:
    """Return the status of the database; opening it has migrated the schema."""
    return run_with_store(url, lambda store: store.status())


def prune_kinds(url: str | None, kind: str | None, older_than: timedelta) -> dict[str, dict[str, int]]:
    """Prune in batches until nothing is left; return the counts by kind."""
    counts: dict[str, dict[str, int]] = {}
    kinds = _lifecycles(url).kinds

    async def work(store: contract.Store) -> dict[str, dict[str, int]]:
        for name in _named(kinds, kind):
            states = sorted(kinds[name].ended)
            removed = counts[name] = {"records": 0, "entries": 0, "requests": 0}
            more = bool(states)
            while more:
                batch = await store.prune(kind=name, states=states, older_than=older_than)
                removed["records"] += batch.records
                removed["entries"] += batch.entries
                removed["requests"] += batch.requests
                more = batch.more
        return counts

    return run_with_store(url, work, kinds)


def prune_queue(url: str | None, kind: str, queue: str, older_than: timedelta) -> dict[str, dict[str, int]]:
    """Prune the ended records of one queue; return the counts by kind."""
    from interlock.store.records import Pruned
    from interlock.store.validation import known_kind

    kinds = _lifecycles(url).kinds
    states = sorted(known_kind(kinds, kind).ended)

    async def work(store: contract.Store) -> dict[str, dict[str, int]]:
        removed = {"records": 0, "entries": 0, "requests": 0}
        for state in states:
            batch = Pruned(more=True)
            while batch.more:
                batch = await store.prune_by_queue(
                    kind=kind, state=state, older_than=None, queues={queue: older_than}, cursor=batch.cursor
                )
                removed["records"] += batch.records
                removed["entries"] += batch.entries
        return {kind: removed}

    return run_with_store(url, work, kinds)


def vacuum_store(url: str | None) -> tuple[str, int | None]:
    """Vacuum the database; return its URL and the number of bytes freed."""

    async def work(store: contract.Store) -> tuple[str, int | None]:
        freed = await store.compact()
        return (await store.status()).url, freed

    return run_with_store(url, work)


def raise_epoch(url: str | None, fence: int) -> tuple[str, int]:
    """Raise the epoch above that of a fencing token; return URL and epoch."""
    from interlock.systems.orchestrator.tokens import EPOCH_SHIFT

    async def work(store: contract.Store) -> tuple[str, int]:
        epoch = await store.raise_epoch(fence >> EPOCH_SHIFT)
        return (await store.status()).url, epoch

    return run_with_store(url, work)


def audit_store(url: str | None, kind: str | None) -> Audit:
    """Replay the journal of every kind that has one."""
    from interlock.engine import audit as replay

    machines, known, _ = _lifecycles(url)
    kinds = [name for name in _named(known, kind) if name in machines]
    return run_with_store(url, lambda store: replay.audit(store, machines, kinds), known)


def status_entry(found: StoreStatus) -> dict[str, Any]:
    """Return the status for a program."""
    import msgspec

    entry: dict[str, Any] = msgspec.to_builtins(found)
    return entry


def status_sheets(found: StoreStatus) -> list[Sheet]:
    """Return the status for people."""
    from interlock.cli.output import Sheet

    counted = partial(_counted, found.cap)
    oldest = found.oldest_entry_at.isoformat(timespec="seconds") if found.oldest_entry_at else "none"
    about = [
        ("store", found.url),
        ("server", found.server),
        ("schema", f"version {found.schema_version} of {found.wanted_version}"),
        *([("size", f"{found.size_bytes:,} bytes")] if found.size_bytes is not None else []),
        ("journal", f"{counted(found.entries)} entries, the oldest of {oldest}"),
        ("requests", counted(found.requests)),
        *_connections(found.connections),
    ]
    rows = [(kind, state, counted(n)) for kind, by in found.records.items() for state, n in by.items()]
    return [
        Sheet("about", "Store", ("what", "value"), about),
        Sheet("records", "Records", ("kind", "state", "number"), rows),
    ]


def _counted(cap: int | None, number: int) -> str:
    """Return a number, with + where counting stopped."""
    return f"{number}+" if cap is not None and number >= cap else str(number)


def _connections(found: ServerConnections | None) -> list[tuple[str, str]]:
    if found is None:
        return []
    each = f"{found.at_rest} at rest, at most {found.busy}"
    return [
        ("connections", f"{found.ours} of Interlock, {found.all} in all, the server allows {found.most}"),
        ("for each worker", each),
    ]


def pruned_sheet(pruned: dict[str, dict[str, int]], *, terminal: bool) -> Sheet:
    """Return the counts of removed records by kind.

    On a terminal, kinds without any are left out.
    """
    from interlock.cli.output import Sheet

    shown = {kind: n for kind, n in pruned.items() if not terminal or any(n.values())}
    rows = [(kind, str(n["records"]), str(n["entries"]), str(n["requests"])) for kind, n in shown.items()]
    return Sheet("pruned", "Removed", ("kind", "records", "entries", "requests"), rows)


def audit_entry(found: Audit) -> dict[str, Any]:
    """Return the audit for a program."""
    import msgspec

    entry: dict[str, Any] = msgspec.to_builtins(found)
    return {"ok": not found.faults, **entry}


def audit_sheets(found: Audit) -> list[Sheet]:
    """Return the audit for people: the counts, then every fault."""
    from interlock.cli.output import Sheet

    verdict = f"{len(found.faults)} faults" if found.faults else "journal and records agree"
    about = [
        ("verdict", verdict),
        ("records", str(found.records)),
        ("entries", str(found.entries)),
        ("steps", str(found.steps)),
        ("refusals", str(found.refusals)),
    ]
    faults = [(fault.kind, fault.id, str(fault.version), fault.sentence) for fault in found.faults]
    return [
        Sheet("audit", "Audit", ("what", "value"), about),
        Sheet("fault", "Faults", ("kind", "id", "version", "what is wrong"), faults),
    ]


def _lifecycles(url: str | None) -> Lifecycles:
    """Return our lifecycles and those of the kinds in the project file."""
    from interlock.cli import project
    from interlock.cli.machine_names import load_kinds
    from interlock.systems.kinds import lifecycles_with

    return lifecycles_with(declared=load_kinds(project.load(url).kinds))


def _named(kinds: Catalogue, kind: str | None) -> Sequence[str]:
    from interlock.store.validation import known_kind

    return tuple(kinds) if kind is None else (known_kind(kinds, kind).name,)


_SQLITE_SIDE_FILES = ("", "-wal", "-shm", "-journal")


def empty_database(url: str, *, sure: bool) -> None:
    """Remove an unused database file of Interlock; confirm unless `sure`."""
    path = _sqlite_path(url)
    if not path.exists():
        return
    jobs = _jobs_in(path)
    if not sure:
        typer.confirm(
            f"Remove {path.resolve()} with its {counted(jobs, 'job')} and their history?", abort=True
        )
    for end in _SQLITE_SIDE_FILES:
        Path(f"{path}{end}").unlink(missing_ok=True)
    typer.echo(f"{path.resolve()} was emptied ({counted(jobs, 'job')}).", err=True)


def _sqlite_path(url: str) -> Path:
    from interlock.store.sqlite.database import path_of

    if not url.startswith("sqlite:"):
        raise BadStoreUrl(
            "Only a SQLite database can be emptied with --reset.",
            todo="Leave --reset out, or recreate the database with its own tools.",
            facts={"scheme": url.partition(":")[0]},
        )
    return path_of(url)


def _jobs_in(path: Path) -> int:
    """Return the number of jobs in the file.

    Raise if it is in use, or not a database of Interlock.
    """
    import sqlite3

    facts: dict[str, object] = {"path": str(path)}
    try:
        with closing(sqlite3.connect(path, timeout=0.5, isolation_level=None)) as database:
            # In this mode the lock is refused while another process has the file open.
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
            database.execute("BEGIN EXCLUSIVE")
            database.execute("SELECT 1 FROM interlock_schema")
            (number,) = database.execute("SELECT count(*) FROM records_view WHERE kind = 'job'").fetchone()
            return int(number)
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise StoreUnavailable(
                f"{path} is in use and was not emptied.",
                todo="Stop the servers and workers that use it, and try again.",
                facts=facts,
            ) from None
        raise _foreign(path, error) from None
    except sqlite3.DatabaseError as error:
        raise _foreign(path, error) from None


def _foreign(path: Path, error: sqlite3.Error) -> ForeignSchema:
    return ForeignSchema(
        f"{path} is not a database of Interlock ({error}) and was not changed.",
        todo="Name another file, or remove it yourself.",
        facts={"path": str(path)},
    )
