"""What `interlock job logs` does: read what attempts have written, and go on while they write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import datetime

import msgspec
import typer

from interlock.cli import printing
from interlock.cli.answers import print_line
from interlock.cli.connecting import ask
from interlock.cli.errors import colour_wanted
from interlock.cli.finding import whole_id
from interlock.cli.following import POLL_S, called_or_time, has_ended
from interlock.cli.times import iso
from interlock.remote.interfaces import Reach
from interlock.systems.orchestrator.attachments import Chunk, Placed, lines_of
from interlock.systems.orchestrator.waiters import waker
from interlock.wire.harmless import harmless

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


def show(
    store: str | None, text: str, attempt: str | None, *, follow: bool, plain: bool, as_json: bool
) -> None:
    """Print the lines of a job, as far as they are there or until it has ended."""
    shard, index = attempt_in(attempt)
    tell = _teller(plain=plain, as_json=as_json)

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
    stop = reach.here.store.subscribe(waker(called)) if follow else _nobody
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
            await called_or_time(called, POLL_S)
    finally:
        stop()


def _nobody() -> None:
    """Nobody is woken, so nobody has to be left alone."""


def attempt_in(text: str | None) -> tuple[int | None, int | None]:
    """Which shard and which try: `2` is any shard's second, `3.2` that of the third."""
    if text is None:
        return None, None
    shard, dot, index = text.rpartition(".")
    if not (index.isascii() and index.isdecimal()) or (dot and not (shard.isascii() and shard.isdecimal())):
        raise typer.BadParameter(f"{text!r} is no attempt; write 2, or 3.2 for the second of the shard 3")
    return int(shard) if dot else None, int(index)


def _teller(*, plain: bool, as_json: bool) -> Callable[[Chunk, Placed], None]:
    if as_json:
        return _tell_program
    if plain:
        return _tell_plainly
    return _tell_person if printing.on_terminal() else _tell_pipe


def _tell_program(chunk: Chunk, placed: Placed) -> None:
    """As it was written: JSON has a way to spell everything."""
    at, line = placed.offset, placed.line
    shard, attempt = chunk.shard, chunk.attempt
    print_line(Line(at=line.at, shard=shard, attempt=attempt, level=line.level, text=line.text, offset=at))


def _tell_plainly(_: Chunk, placed: Placed) -> None:
    colours = printing.on_terminal() and colour_wanted() is not False
    for text in placed.line.text.split("\n"):
        print(harmless(text, colours=colours), flush=True)


def _tell_pipe(chunk: Chunk, placed: Placed) -> None:
    line = placed.line
    head = (iso(line.at), f"{chunk.shard}.{chunk.attempt}", harmless(line.level))
    for text in line.text.split("\n"):
        print("\t".join((*head, harmless(text))), flush=True)


def _tell_person(chunk: Chunk, placed: Placed) -> None:
    line = placed.line
    head = typer.style(f"{line.at:%H:%M:%S} {chunk.shard}.{chunk.attempt} ", dim=True)
    level = typer.style(f"{harmless(line.level):<7} ", fg=_LOUD.get(line.level, "cyan"))
    for text in line.text.split("\n"):
        shown = harmless(text, colours=colour_wanted() is not False)
        typer.echo(f"{head}{level}{shown}", color=colour_wanted())
