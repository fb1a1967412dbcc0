"""Making a database of one's own machine empty again."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import typer

from interlock.errors import BadStoreUrl, ForeignSchema, StoreUnavailable
from interlock.plurals import counted
from interlock.store.sqlite.location import path_of

_BESIDE = ("", "-wal", "-shm", "-journal")


def empty(url: str, *, sure: bool) -> None:
    """Remove a database file, if it is ours and nobody uses it; asks unless somebody is sure."""
    path = _path(url)
    if not path.exists():
        return
    jobs = _jobs_in(path)
    if not sure:
        typer.confirm(
            f"Remove {path.resolve()} with its {counted(jobs, 'job')} and their history?", abort=True
        )
    for end in _BESIDE:
        Path(f"{path}{end}").unlink(missing_ok=True)
    typer.echo(f"{path.resolve()} was emptied ({counted(jobs, 'job')}).", err=True)


def _path(url: str) -> Path:
    if not url.startswith("sqlite:"):
        raise BadStoreUrl(
            "Only a database in a file can be emptied like this.",
            todo="Leave --reset out, or make the database anew with its own tools.",
            facts={"scheme": url.partition(":")[0]},
        )
    return path_of(url)


def _jobs_in(path: Path) -> int:
    """How many jobs are lost; raises when that is not for us to do."""
    facts: dict[str, object] = {"path": str(path)}
    try:
        with closing(sqlite3.connect(path, timeout=0.5, isolation_level=None)) as database:
            # In this mode the lock is refused while anybody at all has the file open.
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
            database.execute("BEGIN EXCLUSIVE")
            database.execute("SELECT 1 FROM interlock_schema")
            (number,) = database.execute("SELECT count(*) FROM records_view WHERE kind = 'job'").fetchone()
            return int(number)
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise StoreUnavailable(
                f"{path} is in use, so it is not emptied.",
                todo="End the servers and workers that use it, and try again.",
                facts=facts,
            ) from None
        raise _foreign(path, error) from None
    except sqlite3.DatabaseError as error:
        raise _foreign(path, error) from None


def _foreign(path: Path, error: sqlite3.Error) -> ForeignSchema:
    return ForeignSchema(
        f"{path} is not a database of Interlock ({error}), so it is left alone.",
        todo="Name another file, or remove it yourself.",
        facts={"path": str(path)},
    )
