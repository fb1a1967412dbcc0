"""`interlock db …`: look after the database.

Only the words are here; what they need is imported where they run, so that `--help` answers at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from interlock.cli.options import Json, Store, examples, parse_duration

FOUND_SOMETHING = 1

app = typer.Typer(
    help="Migrate, inspect, prune, restore and audit the database.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="""\b
URL is one of:
  sqlite:///interlock.db         a file here (the default, unless interlock.toml says otherwise)
  postgresql://user@host/name    PostgreSQL 13 or newer
  redis://host:6379/0            Redis 6.2 or newer, or Valkey

\b
Exit codes:
  0  fine
  1  the audit found something
  2  the question was wrong, or the database cannot be used""",
)


@app.command("migrate", epilog=examples("db migrate", "db migrate --store postgresql://ci@db/interlock"))
def migrate(store: Store = None, as_json: Json = False) -> None:
    """Bring the schema up to date. Safe to run twice, and from many hosts at once."""
    from interlock.cli import db_maintenance, render

    status = db_maintenance.status(store)
    if as_json:
        render.print_json({"url": status.url, "schema_version": status.schema_version})
    else:
        typer.echo(f"{status.url} is at schema version {status.schema_version}.")


@app.command("status", epilog=examples("db status", "db status --json"))
def show_status(store: Store = None, as_json: Json = False) -> None:
    """Show what is in the database."""
    from interlock.cli import db_maintenance, render

    status = db_maintenance.status(store)
    if as_json:
        render.print_json(db_maintenance.status_entry(status))
    else:
        render.print_sheets(db_maintenance.status_sheets(status))


@app.command(
    "prune", epilog=examples("db prune --older-than 30d", "db prune --kind job --older-than 12h --json")
)
def prune(
    older_than: Annotated[
        str, typer.Option(metavar="AGE", help="Since it last changed: 90s, 15m, 12h, 30d, 4w.")
    ],
    kind: Annotated[str | None, typer.Option(help="Only records of this kind.")] = None,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Remove records that ended long ago, with their journal. What is alive is never removed."""
    from interlock.cli import db_maintenance, render

    pruned = db_maintenance.prune(store, kind, parse_duration(older_than))
    if as_json:
        render.print_json(pruned)
    else:
        render.print_sheets([db_maintenance.pruned_sheet(pruned)])


@app.command("vacuum", epilog=examples("db vacuum", "db vacuum --store sqlite:///ci.db --json"))
def vacuum(store: Store = None, as_json: Json = False) -> None:
    """Give the space of pruned records back to the file system."""
    from interlock.cli import db_maintenance, render

    url, freed = db_maintenance.vacuumed(store)
    if as_json:
        render.print_json({"url": url, "freed_bytes": freed})
    elif freed is None:
        typer.echo(f"{url}: the server frees its space by itself.")
    else:
        typer.echo(f"{url} is {freed:,} bytes smaller.")


@app.command(
    "restored", epilog=examples("db restored", "db restored --fence 4284014592131203 --store sqlite:///ci.db")
)
def restored(
    fence: Annotated[
        int, typer.Option(metavar="FENCE", min=0, help="Largest fence that an outside system has seen.")
    ] = 0,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Raise the epoch after restoring a backup, so that no fence is given out twice."""
    from interlock.cli import db_maintenance, render

    url, epoch = db_maintenance.restored(store, fence)
    if as_json:
        render.print_json({"url": url, "epoch": epoch})
    else:
        typer.echo(f"{url} is in epoch {epoch}; fences are larger than all before.")


@app.command("audit", epilog=examples("db audit", "db audit --kind job --json"))
def audit(
    kind: Annotated[str | None, typer.Option(help="Only records of this kind.")] = None,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Replay the journal and compare it with the records; the exit code is 1 when they disagree."""
    from interlock.cli import db_maintenance, render

    found = db_maintenance.audited(store, kind)
    if as_json:
        render.print_json(db_maintenance.audit_entry(found))
    else:
        render.print_sheets(db_maintenance.audit_sheets(found))
    if found.faults:
        raise typer.Exit(FOUND_SOMETHING)
