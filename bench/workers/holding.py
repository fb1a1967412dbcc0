"""From `pause` to the worker's word that it holds, while all others give signs of life.

The worker waits for orders as all do, says that it has carried them out as soon as it has them, and
somebody who watches the books sees that: that is the time a person waits.
"""

from __future__ import annotations

import asyncio
from statistics import quantiles
from time import perf_counter

from bench.report import Line as Row
from bench.report import Section
from bench.rounds import Figure, Pace
from bench.server.house import NAME, House, house
from bench.server.talking import Line
from bench.workers.beats import chosen, workers_in
from bench.workers.crew import BEAT_EVERY_S, Hand, all_beat, listening, registered

HELD = 40


def run(pace: Pace) -> Section:
    """Measure the stores one after the other."""
    number = workers_in(pace)
    rows: list[Row] = []
    for kind, name in chosen(pace).items():
        with house(kind) as place, asyncio.Runner() as runner:
            taken_ms = runner.run(_measure(place, number))
        cut = quantiles(taken_ms, n=20)
        rows.append(Row(f"{name}, half of them hold after", "ms", {NAME: Figure((cut[9],))}))
        rows.append(Row("  19 of 20 after", "ms", {NAME: Figure((cut[18],))}))
    return Section(
        f"Workers: from pause to the word of the worker, {number} waiting for orders", NAME, lines=tuple(rows)
    )


async def _measure(place: House, number: int) -> list[float]:
    ids = await registered(place, number)
    async with listening(place, ids) as hands:
        waiting = {hand.worker_id: asyncio.create_task(_obey(hand)) for hand in hands}
        beating = asyncio.create_task(_beat_on(place, ids))
        person = await Line.to(place.address)
        taken = [await _hold(person, worker_id, waiting[worker_id]) for worker_id in ids[:HELD]]
        person.close()
        beating.cancel()
        for task in waiting.values():
            task.cancel()
        await asyncio.gather(beating, *waiting.values(), return_exceptions=True)
    return taken


async def _beat_on(place: House, ids: list[str]) -> None:
    while True:
        spent_s = await all_beat(place, ids)
        await asyncio.sleep(max(0.0, BEAT_EVERY_S - spent_s))


async def _obey(hand: Hand) -> None:
    """Until there are orders; then say that they are carried out."""
    while not (orders := await hand.hear()).get("number"):
        pass
    body = {"active": 0, "heeded": orders["number"]}
    await hand.line.post(f"/api/workers/{hand.worker_id}/heartbeat".encode(), body)


async def _hold(person: Line, worker_id: str, obeying: asyncio.Task[None]) -> float:
    began = perf_counter()
    await person.post(f"/api/supervisor/workers/{worker_id}/pause".encode(), {"reason": "bench"})
    await obeying
    return (perf_counter() - began) * 1e3
