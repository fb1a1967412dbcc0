"""Commands `job logs` and `run logs`: print the output of attempts, and follow it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from datetime import datetime

import msgspec
import typer

from interlock.cli import output
from interlock.cli.connection import run_connected
from interlock.cli.errors import colour_wanted
from interlock.cli.nouns.job_views import whole_id
from interlock.cli.nouns.run_views import whole_run_id
from interlock.cli.output import iso, print_line
from interlock.cli.watch import POLL_S, has_ended, wait_for_wakeup
from interlock.errors import InvalidArguments, UnknownJob
from interlock.remote.service_connection import ServiceConnection
from interlock.systems.orchestrator.attachments import Chunk, PlacedLine, lines_of
from interlock.systems.orchestrator.waiters import waker
from interlock.text import harmless, nearest
from interlock.wire.runs import RunJobView

MOST_FOLLOWED = 100
_COLOURS = {
    "error": "red",
    "critical": "red",
    "failed": "red",
    "warning": "yellow",
    "stderr": "yellow",
    "gap": "red",
}
PrintLine = Callable[[RunJobView | None, Chunk, PlacedLine], None]
"""Prints a line of an attempt; with its job where several jobs are printed."""


class PrintedLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line with its attempt, and with its job if several jobs are printed."""

    at: datetime
    shard: int
    attempt: int
    level: str
    text: str
    offset: int
    job: str = ""
    job_id: str = ""


def show_job_logs(
    store: str | None, text: str, attempt: str | None, *, follow: bool, plain: bool, as_json: bool
) -> None:
    """Print the lines of a job; with `follow` until it has ended."""
    shard, index = attempt_in(attempt)
    print_one = _printer(plain=plain, as_json=as_json)

    async def work(connection: ServiceConnection) -> None:
        job_id = await whole_id(connection, text)
        await connection.services.jobs.get(job_id)  # raises if there is no such job
        async with aclosing(chunks_of(connection, job_id, follow=follow)) as chunks:
            async for chunk in chunks:
                if shard in (None, chunk.shard) and index in (None, chunk.attempt):
                    for placed in lines_of(chunk):
                        print_one(None, chunk, placed)

    run_connected(store, work)


def show_run_logs(
    store: str | None, text: str, job: str | None, *, follow: bool, plain: bool, as_json: bool
) -> None:
    """Print the lines of a run, in the order of the plan or as they arrive."""
    print_one = _printer(plain=plain, as_json=as_json)

    async def work(connection: ServiceConnection) -> None:
        run_id = await whole_run_id(connection, text)
        jobs = await jobs_of_run(connection, run_id, job)
        if not follow:
            for one in jobs:
                await _print_all(connection, one, print_one, follow=False)
            return
        _check_number(jobs)
        async with asyncio.TaskGroup() as group:
            for one in jobs:
                group.create_task(
                    _print_all(connection, one, print_one, follow=True), name=f"log of {one.name}"
                )

    run_connected(store, work)


async def chunks_of(
    connection: ServiceConnection, job_id: str, *, follow: bool
) -> AsyncGenerator[Chunk, None]:
    """Yield the chunks in the order in which they arrived.

    With `follow` it ends when the job has ended.
    """
    called = asyncio.Event()
    stop = connection.services.store.subscribe(waker(called)) if follow else _nothing
    new_chunks = connection.new_chunks(job_id)
    try:
        while True:
            called.clear()
            # The job is read before its lines, so that none of a job that has ended is missed.
            over = not follow or has_ended(await connection.services.jobs.get(job_id))
            async for chunk in new_chunks():
                yield chunk
            if over:
                return
            await wait_for_wakeup(called, POLL_S)
    finally:
        stop()


def _nothing() -> None:
    """Do nothing: there is no subscription to end."""


def attempt_in(text: str | None) -> tuple[int | None, int | None]:
    """Return shard and attempt.

    `2` is the second attempt of any shard, `3.2` that of the third.
    """
    if text is None:
        return None, None
    shard, dot, index = text.rpartition(".")
    if not (index.isascii() and index.isdecimal()) or (dot and not (shard.isascii() and shard.isdecimal())):
        raise typer.BadParameter(f"{text!r} is not an attempt; write 2, or 3.2 for the second of shard 3")
    return int(shard) if dot else None, int(index)


async def jobs_of_run(connection: ServiceConnection, run_id: str, name: str | None) -> Sequence[RunJobView]:
    """Return the job of this name or all; raise for an unknown name."""
    jobs = (await connection.services.runs.view(run_id)).jobs
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
    connection: ServiceConnection, job: RunJobView, print_one: PrintLine, *, follow: bool
) -> None:
    with suppress(UnknownJob):  # a job that is not created yet has written nothing
        async with aclosing(chunks_of(connection, job.job_id, follow=follow)) as chunks:
            async for chunk in chunks:
                for placed in lines_of(chunk):
                    print_one(job, chunk, placed)


def _check_number(jobs: Sequence[RunJobView]) -> None:
    if len(jobs) > MOST_FOLLOWED:
        raise InvalidArguments(
            f"The run has {len(jobs):,} jobs, and at most {MOST_FOLLOWED} can be followed at once.",
            todo="Name one of them, or leave out --follow.",
            facts={"jobs": len(jobs), "most": MOST_FOLLOWED},
        )


def _printer(*, plain: bool, as_json: bool) -> PrintLine:
    if as_json:
        return _print_json
    if plain:
        return _print_plain
    return _print_coloured if output.on_terminal() else _print_row


def _print_json(job: RunJobView | None, chunk: Chunk, placed: PlacedLine) -> None:
    """Print the unmodified text: JSON can encode every character."""
    line = placed.line
    print_line(
        PrintedLine(
            at=line.at,
            shard=chunk.shard,
            attempt=chunk.attempt,
            level=line.level,
            text=line.text,
            offset=placed.offset,
            job=job.name if job else "",
            job_id=job.job_id if job else "",
        )
    )


def _print_plain(_: RunJobView | None, __: Chunk, placed: PlacedLine) -> None:
    colours = output.on_terminal() and colour_wanted() is not False
    for text in placed.line.text.split("\n"):
        print(harmless(text, colours=colours), flush=True)


def _print_row(job: RunJobView | None, chunk: Chunk, placed: PlacedLine) -> None:
    line = placed.line
    names = (job.name,) if job else ()
    head = (iso(line.at), *names, f"{chunk.shard}.{chunk.attempt}", harmless(line.level))
    for text in line.text.split("\n"):
        print("\t".join((*head, harmless(text))), flush=True)


def _print_coloured(job: RunJobView | None, chunk: Chunk, placed: PlacedLine) -> None:
    line = placed.line
    where = f"{job.name} │" if job else f"{chunk.shard}.{chunk.attempt}"
    head = typer.style(f"{line.at:%H:%M:%S} {where} ", dim=True)
    if job is None:
        head += typer.style(f"{harmless(line.level):<7} ", fg=_COLOURS.get(line.level, "cyan"))
    for text in line.text.split("\n"):
        shown = harmless(text, colours=colour_wanted() is not False)
        typer.echo(f"{head}{shown}", color=colour_wanted())
