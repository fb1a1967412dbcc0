"""Commands `interlock db …`: maintain the database.

Only the declarations are here: each command imports what it needs when it runs, so that `--help` is quick.
"""

from __future__ import annotations

from typing import Annotated

import typer

from interlock.cli.options import FOUND_SOMETHING, Json, Store, examples, parse_duration

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
    from interlock.cli.nouns import db_maintenance

    status = db_maintenance.status(store)
    if as_json:
        output.print_json({"url": status.url, "schema_version": status.schema_version})
    else:
        typer.echo(f"{status.url} is at schema version {status.schema_version}.")


@app.command("status", epilog=examples("db status", "db status --json"))
def show_status(store: Store = None, as_json: Json = False) -> None:
    """Show schema version, size and number of records."""
    from interlock.cli import output
    from interlock.cli.nouns import db_maintenance

    status = db_maintenance.status(store)
    if as_json:
        output.print_json(db_maintenance.status_entry(status))
    else:
        output.print_sheets(db_maintenance.status_sheets(status))


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
    from interlock.cli.nouns import db_maintenance

    age = parse_duration(older_than)
    if queue is None:
        pruned = db_maintenance.prune(store, kind, age)
    else:
        pruned = db_maintenance.prune_queue(store, kind or "job", queue, age)
    if as_json:
        output.print_json(pruned)
    else:
        output.print_sheets([db_maintenance.pruned_sheet(pruned, terminal=output.on_terminal())])
    if not as_json and not any(any(counts.values()) for counts in pruned.values()):
        typer.echo(f"Nothing was removed: no record has ended more than {older_than} ago.", err=True)


@app.command("vacuum", epilog=examples("db vacuum", "db vacuum --store sqlite:///ci.db --json"))
def vacuum(store: Store = None, as_json: Json = False) -> None:
    """Return the space of pruned records to the file system."""
    from interlock.cli import output
    from interlock.cli.nouns import db_maintenance

    url, freed = db_maintenance.vacuumed(store)
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
    from interlock.cli.nouns import db_maintenance

    url, epoch = db_maintenance.restored(store, fence)
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
    from interlock.cli.nouns import db_maintenance

    found = db_maintenance.audited(store, kind)
    if as_json:
        output.print_json(db_maintenance.audit_entry(found))
    else:
        output.print_sheets(db_maintenance.audit_sheets(found))
    if found.faults:
        raise typer.Exit(FOUND_SOMETHING)
