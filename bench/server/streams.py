"""Many readers of live events: how late they hear of something, and what they cost the server."""

from __future__ import annotations

import asyncio
from time import perf_counter

from bench.report import Line as Row
from bench.report import Section
from bench.rounds import Figure, Pace
from bench.server.house import NAME, House, door, house
from bench.server.talking import Line
from bench.stores.bare.loop import Unexpected
from interlock.wire.jobs import JobSpec

READERS = 1_000
EVENTS_EACH_S = 100
SECONDS = 10


def run(pace: Pace) -> Section:
    """Open the streams, submit jobs at a steady pace, and see when each reader has read each of them."""
    readers = READERS if pace.job_rounds > 1 else READERS // 10
    with house() as place, asyncio.Runner() as runner:
        latencies, before_mb, open_mb, after_mb, used = runner.run(_listen(place, readers))
    late = sorted(latencies)
    return Section(
        f"Server: {readers:,} readers of live events, {EVENTS_EACH_S} events/s for {SECONDS} s",
        NAME,
        lines=(
            Row("from submit to read, p50", "ms", {NAME: Figure((late[len(late) // 2],))}),
            Row("from submit to read, p99", "ms", {NAME: Figure((late[int(len(late) * 0.99)],))}),
            Row("the server's processor", "of one core", {NAME: Figure((used,))}),
            Row("memory without readers", "MB", {NAME: Figure((before_mb,))}),
            Row("with all streams open", "MB", {NAME: Figure((open_mb,))}),
            Row("at the end", "MB", {NAME: Figure((after_mb,))}),
        ),
        notes=("Every event reached every reader.", "The readers share the machine with the server."),
    )


async def _listen(place: House, readers: int) -> tuple[list[float], float, float, float, float]:
    before_mb = place.memory_mb()
    lines = []
    for _ in range(readers):
        line = await Line.to(place.address)
        line.send(b"GET", b"/api/events?kind=job")
        await line.head()
        lines.append(line)
    open_mb = place.memory_mb()
    submitted: dict[bytes, float] = {}
    number = EVENTS_EACH_S * SECONDS
    counts = [asyncio.create_task(_count(line, number)) for line in lines[1:]]
    watched = asyncio.create_task(_watch(lines[0], number, submitted))
    cpu_s, began = place.cpu_s(), perf_counter()
    await _submit(place, number, submitted)
    late = await asyncio.wait_for(watched, 120)
    await asyncio.wait_for(asyncio.gather(*counts), 120)
    used = (place.cpu_s() - cpu_s) / (perf_counter() - began)
    after_mb = place.memory_mb()
    for line in lines:
        line.close()
    return late, before_mb, open_mb, after_mb, used


async def _submit(place: House, number: int, submitted: dict[bytes, float]) -> None:
    """One after the other, at the pace that was asked for."""
    async with door(place) as il:
        began = perf_counter()
        for each in range(number):
            await asyncio.sleep(max(0.0, began + each / EVENTS_EACH_S - perf_counter()))
            at = perf_counter()
            made = await il.submit(JobSpec(task="noop"))
            submitted[made.id.encode()] = at


async def _watch(line: Line, number: int, submitted: dict[bytes, float]) -> list[float]:
    """How late each event is read by one of them."""
    late: list[float] = []
    while len(late) < number:
        text = await line.reader.readuntil(b"\n")
        if text.startswith(b"data:"):
            job_id = text.partition(b'"id":"')[2][:14]
            while job_id not in submitted:  # the reader may be faster than whoever has submitted it
                await asyncio.sleep(0)
            late.append((perf_counter() - submitted[job_id]) * 1e3)
    return late


async def _count(line: Line, number: int) -> None:
    """Read until everything has come."""
    seen, tail = 0, b""
    while seen < number:
        chunk = await line.reader.read(65_536)
        if not chunk:
            raise Unexpected(f"A stream has ended after {seen} of {number} events.")
        text = tail + chunk
        seen += text.count(b"event: entry")
        tail = text[-len(b"event: entry") + 1 :]
