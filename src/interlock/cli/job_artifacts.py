"""What `interlock job artifacts` does: list what attempts have left behind, and fetch it."""

from __future__ import annotations

from pathlib import Path

import typer

from interlock.cli import printing
from interlock.cli.answers import print_struct
from interlock.cli.connecting import ask
from interlock.cli.finding import whole_id
from interlock.cli.times import iso
from interlock.remote.downloads import saved
from interlock.remote.interfaces import Reach
from interlock.wire.artifacts import ArtifactList, ArtifactView

COLUMNS = ("name", "attempt", "bytes", "when", "sha256")


def show(store: str | None, text: str, *, as_json: bool) -> None:
    """Print what there is."""

    async def work(reach: Reach) -> ArtifactList:
        job_id = await whole_id(reach.here.jobs, text)
        await reach.here.jobs.get(job_id)  # a job without any is told from no job at all
        return ArtifactList(await reach.here.artifacts.list(job_id))

    found = ask(store, work)
    if as_json:
        print_struct(found)
    else:
        printing.print_sheets(
            [printing.Sheet("artifact", "", COLUMNS, [_row(view) for view in found.artifacts])]
        )


def fetch(store: str | None, text: str, name: str, to: str, attempt: str, *, as_json: bool) -> None:
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


def _row(view: ArtifactView) -> tuple[str, ...]:
    return (view.name, f"{view.shard}.{view.attempt}", str(view.size), iso(view.created_at), view.sha256)
