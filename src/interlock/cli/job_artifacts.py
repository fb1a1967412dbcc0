"""Commands `job artifacts` and `run artifacts`: list the files that jobs have left, and fetch one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import typer

from interlock.cli import output
from interlock.cli.connection import ask
from interlock.cli.job_logs import chosen_jobs
from interlock.cli.job_views import whole_id
from interlock.cli.output import iso, print_struct
from interlock.cli.run_views import whole_run_id
from interlock.remote.downloads import saved
from interlock.remote.interfaces import Reach
from interlock.wire.artifacts import ArtifactList, ArtifactView

JOB_COLUMNS = ("name", "attempt", "bytes", "when", "sha256")


def list_job_artifacts(store: str | None, text: str, *, as_json: bool) -> None:
    """Print what there is."""

    async def work(reach: Reach) -> ArtifactList:
        job_id = await whole_id(reach.here.jobs, text)
        await reach.here.jobs.get(job_id)  # a job without any is told from no job at all
        return ArtifactList(await reach.here.artifacts.list(job_id))

    found = ask(store, work)
    if as_json:
        print_struct(found)
    else:
        output.print_sheets(
            [output.Sheet("artifact", "", JOB_COLUMNS, [_job_row(view) for view in found.artifacts])]
        )


def fetch_job_artifact(
    store: str | None, text: str, name: str, to: str, attempt: str, *, as_json: bool
) -> None:
    """Write one of them into a folder, and print where it is."""
    folder = Path(to)
    if not folder.is_dir():
        raise typer.BadParameter(f"there is no folder {to}", param_hint="--to")

    async def work(reach: Reach) -> tuple[ArtifactView, Path]:
        job_id = await whole_id(reach.here.jobs, text)
        await reach.here.jobs.get(job_id)
        async with reach.here.artifacts.opened(job_id, name, attempt) as (view, pieces):
            return view, await saved(view, pieces, folder)

    view, path = ask(store, work)
    if as_json:
        print_struct({"path": str(path), "artifact": view})
    else:
        print(path)


def _job_row(view: ArtifactView) -> tuple[str, ...]:
    return (view.name, f"{view.shard}.{view.attempt}", str(view.size), iso(view.created_at), view.sha256)


RUN_COLUMNS = ("job", "name", "attempt", "bytes", "when", "job id")


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """A file, and of which job it is."""

    job: str
    artifact: ArtifactView


def show_or_fetch_of_run(
    store: str | None, text: str, job: str | None, name: str | None, to: str, *, as_json: bool
) -> None:
    """Print what there is, or write one of it into a folder."""
    if name is None:
        _list_run_artifacts(store, text, job, as_json=as_json)
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


def _list_run_artifacts(store: str | None, text: str, job: str | None, *, as_json: bool) -> None:
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
    output.print_sheets([output.Sheet("artifact", "", RUN_COLUMNS, [_run_row(left) for left in found])])
    if not found:
        typer.echo("Its jobs have left nothing behind.", err=True)


def _run_row(left: Left) -> tuple[str, ...]:
    view = left.artifact
    return (
        left.job,
        view.name,
        f"{view.shard}.{view.attempt}",
        str(view.size),
        iso(view.created_at),
        view.job_id,
    )
