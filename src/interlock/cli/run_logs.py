"""What `interlock run logs` does: what the jobs of a run have written, each line with its job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress

import typer

from interlock.cli import printing
from interlock.cli.answers import print_line
from interlock.cli.connecting import ask
from interlock.cli.errors import colour_wanted
from interlock.cli.job_logs import Line, chunks_of
from interlock.cli.run_finding import whole_run_id
from interlock.cli.times import iso
from interlock.errors import InvalidArguments, UnknownJob
from interlock.remote.interfaces import Reach
from interlock.suggestions import nearest
from interlock.systems.orchestrator.attachments import Chunk, Placed, lines_of
from interlock.wire.harmless import harmless
from interlock.wire.runs import RunJobView

MOST_FOLLOWED = 100


class JobLine(Line, frozen=True, kw_only=True):
    """One line, and of which job it is."""

    job: str
    job_id: str


def show(store: str | None, text: str, job: str | None, *, follow: bool, plain: bool, as_json: bool) -> None:
    """Print the lines of a run, job by job in the order of the plan, or as they come."""
    tell = _teller(plain=plain, as_json=as_json)

    async def work(reach: Reach) -> None:
        run_id = await whole_run_id(reach.here.runs, text)
        jobs = await chosen_jobs(reach, run_id, job)
        if not follow:
            for one in jobs:
                await _tell_all(reach, one, tell, follow=False)
            return
        _refuse_too_many(jobs)
        async with asyncio.TaskGroup() as group:
            for one in jobs:
                group.create_task(_tell_all(reach, one, tell, follow=True), name=f"log of {one.name}")

    ask(store, work)


async def chosen_jobs(reach: Reach, run_id: str, name: str | None) -> Sequence[RunJobView]:
    """The job of this name, or all of them; raises when there is no such job."""
    jobs = (await reach.here.runs.view(run_id)).jobs
    if name is None:
        return jobs
    found = [job for job in jobs if job.name == name]
    if found:
        return found
    known = [job.name for job in jobs]
    guess = nearest(name, known)
    raise UnknownJob(
        f"The run {run_id} has no job {name!r}." + (f" Did you mean {guess}?" if guess else ""),
        allowed=known[:MOST_FOLLOWED],
        todo=f"See `interlock run show {run_id}`.",
        facts={"run_id": run_id, "job": name},
    )


async def _tell_all(
    reach: Reach, job: RunJobView, tell: Callable[[RunJobView, Chunk, Placed], None], *, follow: bool
) -> None:
    with suppress(UnknownJob):  # one that is not made yet has written nothing
        async with aclosing(chunks_of(reach, job.job_id, follow=follow)) as chunks:
            async for chunk in chunks:
                for placed in lines_of(chunk):
                    tell(job, chunk, placed)


def _refuse_too_many(jobs: Sequence[RunJobView]) -> None:
    if len(jobs) > MOST_FOLLOWED:
        raise InvalidArguments(
            f"The run has {len(jobs):,} jobs, and at most {MOST_FOLLOWED} are followed at once.",
            todo="Name one of them, or leave out --follow.",
            facts={"jobs": len(jobs), "most": MOST_FOLLOWED},
        )


def _teller(*, plain: bool, as_json: bool) -> Callable[[RunJobView, Chunk, Placed], None]:
    if as_json:
        return _tell_program
    if plain:
        return _tell_plainly
    return _tell_person if printing.on_terminal() else _tell_pipe


def _tell_program(job: RunJobView, chunk: Chunk, placed: Placed) -> None:
    line = placed.line
    print_line(
        JobLine(
            job=job.name,
            job_id=job.job_id,
            at=line.at,
            shard=chunk.shard,
            attempt=chunk.attempt,
            level=line.level,
            text=line.text,
            offset=placed.offset,
        )
    )


def _tell_plainly(_: RunJobView, __: Chunk, placed: Placed) -> None:
    print(
        harmless(placed.line.text, colours=printing.on_terminal() and colour_wanted() is not False),
        flush=True,
    )


def _tell_pipe(job: RunJobView, chunk: Chunk, placed: Placed) -> None:
    line = placed.line
    where = (job.name, f"{chunk.shard}.{chunk.attempt}")
    print("\t".join((iso(line.at), *where, harmless(line.level), harmless(line.text))), flush=True)


def _tell_person(job: RunJobView, _: Chunk, placed: Placed) -> None:
    line = placed.line
    head = typer.style(f"{line.at:%H:%M:%S} {job.name} │ ", dim=True)
    text = harmless(line.text, colours=colour_wanted() is not False)
    typer.echo(f"{head}{text}", color=colour_wanted())
