"""Commands `job artifacts` and `run artifacts`: list the files that jobs have stored, and fetch one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path

import msgspec
import typer

from interlock.cli import output
from interlock.cli.connection import run_connected
from interlock.cli.logs import jobs_of_run
from interlock.cli.nouns.job_views import whole_id
from interlock.cli.nouns.run_views import whole_run_id
from interlock.cli.output import Sheet, print_struct, shown
from interlock.remote.downloads import saved
from interlock.remote.service_connection import ServiceConnection
from interlock.wire.artifacts import ArtifactList, ArtifactView

_COLUMNS = ("name", "attempt", "bytes", "when")


class ListedArtifact(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact of a run, with the name of its job."""

    job: str
    artifact: ArtifactView


def list_job_artifacts(store: str | None, text: str, *, as_json: bool) -> None:
    """Print the artifacts of a job."""

    async def work(connection: ServiceConnection) -> tuple[ArtifactList, datetime]:
        return ArtifactList(
            await connection.services.artifacts.list(await _job(connection, text))
        ), await connection.now()

    found, now = run_connected(store, work)
    if as_json:
        print_struct(found)
    else:
        rows = [(*_row(view, now), view.sha256) for view in found.artifacts]
        output.print_sheets([Sheet("artifact", "", (*_COLUMNS, "sha256"), rows)])
        if not rows:
            typer.echo("It has stored no artifacts.", err=True)


def list_run_artifacts(store: str | None, text: str, job: str | None, *, as_json: bool) -> None:
    """Print the artifacts of all jobs of a run, or of one."""

    async def work(connection: ServiceConnection) -> tuple[list[ListedArtifact], datetime]:
        jobs = await jobs_of_run(connection, await whole_run_id(connection, text), job)
        found = [
            ListedArtifact(job=one.name, artifact=view)
            for one in jobs
            for view in await connection.services.artifacts.list(one.job_id)
        ]
        return found, await connection.now()

    found, now = run_connected(store, work)
    if as_json:
        print_struct(found)
        return
    rows = [(each.job, *_row(each.artifact, now), each.artifact.job_id) for each in found]
    output.print_sheets([Sheet("artifact", "", ("job", *_COLUMNS, "job id"), rows)])
    if not found:
        typer.echo("Its jobs have stored no artifacts.", err=True)


def fetch_job_artifact(
    store: str | None, text: str, name: str, to: str, attempt: str, *, as_json: bool
) -> None:
    """Write an artifact of a job into a folder, and print its path."""
    _fetch(store, lambda connection: _job(connection, text), name, to, attempt, as_json=as_json)


def fetch_run_artifact(
    store: str | None, text: str, job: str | None, name: str, to: str, *, as_json: bool
) -> None:
    """Write an artifact of one job of a run into a folder, and print its path."""
    if job is None:
        raise typer.BadParameter("name the job: run artifacts RUN JOB --get NAME", param_hint="--get")

    async def find(connection: ServiceConnection) -> str:
        (one,) = await jobs_of_run(connection, await whole_run_id(connection, text), job)
        return one.job_id

    _fetch(store, find, name, to, "", as_json=as_json)


def _fetch(
    store: str | None,
    find: Callable[[ServiceConnection], Awaitable[str]],
    name: str,
    to: str,
    attempt: str,
    *,
    as_json: bool,
) -> None:
    folder = Path(to)
    if not folder.is_dir():
        raise typer.BadParameter(f"there is no folder {to}", param_hint="--to")

    async def work(connection: ServiceConnection) -> tuple[ArtifactView, Path]:
        async with connection.services.artifacts.opened(await find(connection), name, attempt) as (
            view,
            pieces,
        ):
            return view, await saved(view, pieces, folder)

    view, path = run_connected(store, work)
    if as_json:
        print_struct({"path": str(path), "artifact": view})
    else:
        print(path)


async def _job(connection: ServiceConnection, text: str) -> str:
    job_id = await whole_id(connection, text)
    await connection.services.jobs.get(job_id)  # raises if there is no such job
    return job_id


def _row(view: ArtifactView, now: datetime) -> tuple[str, ...]:
    when = shown(view.created_at, now, terminal=output.on_terminal())
    return (view.name, f"{view.shard}.{view.attempt}", str(view.size), when)
