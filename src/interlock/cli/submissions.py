"""What `interlock submit` does: check, store, say which, and wait if somebody wants that."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import msgspec
import typer

from interlock.cli import project, specs, watchers
from interlock.cli.answers import print_line, print_struct
from interlock.cli.connecting import actor, connected
from interlock.cli.finding import whole_id
from interlock.remote.interfaces import JobsApi, Reach
from interlock.systems.orchestrator.jobs import BULK
from interlock.systems.orchestrator.submission import check_spec
from interlock.wire.jobs import JobSpec, JobView


def submit(
    store: str | None,
    asked: specs.Asked,
    request_id: str | None,
    wait: bool,
    patience_s: float | None,
    *,
    verbose: bool = False,
    as_json: bool,
) -> int:
    """Submit what was asked for; the answer is the exit code."""
    here = project.load(store)
    made = specs.specs_for(asked, here, sys.stdin.buffer if sys.stdin else ())
    for spec in made:
        check_spec(spec, here.settings)

    async def work() -> int:
        async with connected(here) as port:
            ids = await _stored(port.here.jobs, made, request_id, quiet=as_json)
            if wait:
                return await _waited(port, ids, patience_s, verbose=verbose, as_json=as_json)
            if as_json:
                _print_views([view for view in await _views(port.here.jobs, ids) if view is not None])
            return 0

    try:
        return asyncio.run(work())
    except KeyboardInterrupt:
        if wait:
            typer.echo("Stopped watching; whatever was submitted goes on.", err=True)
        raise


async def _stored(
    jobs: JobsApi, made: Sequence[JobSpec], request_id: str | None, *, quiet: bool
) -> list[str]:
    """Store them, and say which as soon as they are: what is stored must not be lost to its owner."""
    made = await _with_whole_parents(jobs, made)
    ids: list[str] = []
    size = len(made) if request_id is not None else BULK
    for start in range(0, len(made), max(size, 1)):
        batch = made[start : start + size]
        ids += (new := await jobs.submit_many(batch, actor=actor(), request_id=request_id))
        if not quiet:
            print("\n".join(new), flush=True)
    return ids


async def _with_whole_parents(jobs: JobsApi, made: Sequence[JobSpec]) -> Sequence[JobSpec]:
    named = {spec.parent_job_id for spec in made if spec.parent_job_id}
    if not named:
        return made
    whole = {text: await whole_id(jobs, text) for text in named}
    return [msgspec.structs.replace(s, parent_job_id=whole.get(s.parent_job_id or "")) for s in made]


async def _waited(
    port: Reach, ids: Sequence[str], patience_s: float | None, *, verbose: bool, as_json: bool
) -> int:
    if as_json:
        code, views = await watchers.follow_quietly(port, ids, patience_s)
        _print_views(views)
        return code
    code, views = await watchers.follow(port, ids, patience_s, verbose=verbose)
    for view in views:
        if isinstance(view.result, msgspec.Raw):
            result = bytes(view.result).decode(errors="replace")
            print(result if len(ids) == 1 else f"{view.id}\t{result}", flush=True)
    return code


async def _views(jobs: JobsApi, ids: Sequence[str]) -> list[JobView | None]:
    found: list[JobView | None] = []
    for start in range(0, len(ids), BULK):
        found += await jobs.get_many(ids[start : start + BULK])
    return found


def _print_views(views: Sequence[JobView]) -> None:
    if len(views) == 1:
        print_struct(views[0])
        return
    for view in views:
        print_line(view)
