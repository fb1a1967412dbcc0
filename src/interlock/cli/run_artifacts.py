"""What `interlock run artifacts` does: what the jobs of a run have left behind, and one of it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import typer

from interlock.cli import printing
from interlock.cli.answers import print_struct
from interlock.cli.connecting import ask
from interlock.cli.run_finding import whole_run_id
from interlock.cli.run_logs import chosen_jobs
from interlock.cli.times import iso
from interlock.remote.downloads import saved
from interlock.remote.interfaces import Reach
from interlock.wire.artifacts import ArtifactView

COLUMNS = ("job", "name", "attempt", "bytes", "when", "job id")


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """A file, and of which job it is."""

    job: str
    artifact: ArtifactView


def show_or_fetch(
    store: str | None, text: str, job: str | None, name: str | None, to: str, *, as_json: bool
) -> None:
    """Print what there is, or write one of it into a folder."""
    if name is None:
        _show(store, text, job, as_json=as_json)
        return
    if job is None:
        raise typer.BadParameter("say of which job: run artifacts RUN JOB --get NAME", param_hint="--get")
    if not Path(to).is_dir():
        raise typer.BadParameter(f"there is no folder {to}", param_hint="--to")

    async def work(reach: Reach) -> tuple[ArtifactView, Path]:
        run_id = await whole_run_id(reach.here.runs, text)
        (one,) = await chosen_jobs(reach, run_id, job)
        async with reach.here.artifacts.opened(one.job_id, name) as (view, pieces):
            return view, await saved(view, pieces, Path(to))

    view, path = ask(store, work)
    if as_json:
        print_struct({"path": str(path), "artifact": view})
    else:
        print(path)


def _show(store: str | None, text: str, job: str | None, *, as_json: bool) -> None:
    async def work(reach: Reach) -> list[Left]:
        run_id = await whole_run_id(reach.here.runs, text)
        jobs = await chosen_jobs(reach, run_id, job)
        return [
            Left(job=one.name, artifact=view)
            for one in jobs
            for view in await reach.here.artifacts.list(one.job_id)
        ]

    found = ask(store, work)
    if as_json:
        print_struct(found)
        return
    printing.print_sheets([printing.Sheet("artifact", "", COLUMNS, [_row(left) for left in found])])
    if not found:
        typer.echo("Its jobs have left nothing behind.", err=True)


def _row(left: Left) -> tuple[str, ...]:
    view = left.artifact
    return (
        left.job,
        view.name,
        f"{view.shard}.{view.attempt}",
        str(view.size),
        iso(view.created_at),
        view.job_id,
    )
