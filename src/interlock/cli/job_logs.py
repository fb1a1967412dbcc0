"""Commands `job logs` and `run logs`: print what attempts have written, and follow it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from datetime import datetime

import msgspec
import typer

from interlock.cli import output
from interlock.cli.connection import ask
from interlock.cli.errors import colour_wanted
from interlock.cli.job_views import whole_id
from interlock.cli.journal import POLL_S, has_ended, wait_for_wakeup
from interlock.cli.output import iso, print_line
from interlock.cli.run_views import whole_run_id
from interlock.errors import InvalidArguments, UnknownJob
from interlock.remote.interfaces import Reach
from interlock.systems.orchestrator.attachments import Chunk, Placed, lines_of
from interlock.systems.orchestrator.waiters import waker
from interlock.text import harmless, nearest
from interlock.wire.runs import RunJobView

_LOUD = {
    "error": "red",
    "critical": "red",
    "failed": "red",
    "warning": "yellow",
    "stderr": "yellow",
    "gap": "red",
}


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line, and whose it is."""

    at: datetime
    shard: int
    attempt: int
    level: str
    text: str
    offset: int


def show_job_logs(
    store: str | None, text: str, attempt: str | None, *, follow: bool, plain: bool, as_json: bool
) -> None:
    """Print the lines of a job, as far as they are there or until it has ended."""
    shard, index = attempt_in(attempt)
    tell = _job_printer(plain=plain, as_json=as_json)

    async def work(reach: Reach) -> None:
        job_id = await whole_id(reach.here.jobs, text)
        await reach.here.jobs.get(job_id)  # a job without a line is told from no job at all
        async with aclosing(chunks_of(reach, job_id, follow=follow)) as chunks:
            async for chunk in chunks:
                if shard in (None, chunk.shard) and index in (None, chunk.attempt):
                    for placed in lines_of(chunk):
                        tell(chunk, placed)

    ask(store, work)


async def chunks_of(reach: Reach, job_id: str, *, follow: bool) -> AsyncGenerator[Chunk, None]:
    """The chunks in the order in which they arrived; with `follow` until the job has ended."""
    called = asyncio.Event()
    stop = reach.here.store.subscribe(waker(called)) if follow else _noop
    new_chunks = reach.new_chunks(job_id)
    try:
        while True:
            called.clear()
            # Looked at before its lines are read: of what has ended nothing is missed then.
            over = not follow or has_ended(await reach.here.jobs.get(job_id))
            async for chunk in new_chunks():
                yield chunk
            if over:
                return
            await wait_for_wakeup(called, POLL_S)
    finally:
        stop()


def _noop() -> None:
    """Nobody is woken, so nobody has to be left alone."""


def attempt_in(text: str | None) -> tuple[int | None, int | None]:
    """Which shard and which try: `2` is any shard's second, `3.2` that of the third."""
    if text is None:
        return None, None
    shard, dot, index = text.rpartition(".")
    if not (index.isascii() and index.isdecimal()) or (dot and not (shard.isascii() and shard.isdecimal())):
        raise typer.BadParameter(f"{text!r} is no attempt; write 2, or 3.2 for the second of the shard 3")
    return int(shard) if dot else None, int(index)


def _job_printer(*, plain: bool, as_json: bool) -> Callable[[Chunk, Placed], None]:
    if as_json:
        return _print_job_json
    if plain:
        return _print_job_plain
    return _print_job_colored if output.on_terminal() else _print_job_row


def _print_job_json(chunk: Chunk, placed: Placed) -> None:
    """As it was written: JSON has a way to spell everything."""
    at, line = placed.offset, placed.line
    shard, attempt = chunk.shard, chunk.attempt
    print_line(Line(at=line.at, shard=shard, attempt=attempt, level=line.level, text=line.text, offset=at))


def _print_job_plain(_: Chunk, placed: Placed) -> None:
    colours = output.on_terminal() and colour_wanted() is not False
    for text in placed.line.text.split("\n"):
        print(harmless(text, colours=colours), flush=True)


def _print_job_row(chunk: Chunk, placed: Placed) -> None:
    line = placed.line
    head = (iso(line.at), f"{chunk.shard}.{chunk.attempt}", harmless(line.level))
    for text in line.text.split("\n"):
        print("\t".join((*head, harmless(text))), flush=True)


def _print_job_colored(chunk: Chunk, placed: Placed) -> None:
    line = placed.line
    head = typer.style(f"{line.at:%H:%M:%S} {chunk.shard}.{chunk.attempt} ", dim=True)
    level = typer.style(f"{harmless(line.level):<7} ", fg=_LOUD.get(line.level, "cyan"))
    for text in line.text.split("\n"):
        shown = harmless(text, colours=colour_wanted() is not False)
        typer.echo(f"{head}{level}{shown}", color=colour_wanted())


MOST_FOLLOWED = 100


class JobLine(Line, frozen=True, kw_only=True):
    """One line, and of which job it is."""

    job: str
    job_id: str


def show_run_logs(
    store: str | None, text: str, job: str | None, *, follow: bool, plain: bool, as_json: bool
) -> None:
    """Print the lines of a run, job by job in the order of the plan, or as they come."""
    tell = _run_printer(plain=plain, as_json=as_json)

    async def work(reach: Reach) -> None:
        run_id = await whole_run_id(reach.here.runs, text)
        jobs = await chosen_jobs(reach, run_id, job)
        if not follow:
            for one in jobs:
                await _print_all(reach, one, tell, follow=False)
            return
        _refuse_too_many(jobs)
        async with asyncio.TaskGroup() as group:
            for one in jobs:
                group.create_task(_print_all(reach, one, tell, follow=True), name=f"log of {one.name}")

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


async def _print_all(
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


def _run_printer(*, plain: bool, as_json: bool) -> Callable[[RunJobView, Chunk, Placed], None]:
    if as_json:
        return _print_run_json
    if plain:
        return _print_run_plain
    return _print_run_colored if output.on_terminal() else _print_run_row


def _print_run_json(job: RunJobView, chunk: Chunk, placed: Placed) -> None:
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


def _print_run_plain(_: RunJobView, __: Chunk, placed: Placed) -> None:
    print(
        harmless(placed.line.text, colours=output.on_terminal() and colour_wanted() is not False),
        flush=True,
    )


def _print_run_row(job: RunJobView, chunk: Chunk, placed: Placed) -> None:
    line = placed.line
    where = (job.name, f"{chunk.shard}.{chunk.attempt}")
    print("\t".join((iso(line.at), *where, harmless(line.level), harmless(line.text))), flush=True)


def _print_run_colored(job: RunJobView, _: Chunk, placed: Placed) -> None:
    line = placed.line
    head = typer.style(f"{line.at:%H:%M:%S} {job.name} │ ", dim=True)
    text = harmless(line.text, colours=colour_wanted() is not False)
    typer.echo(f"{head}{text}", color=colour_wanted())
