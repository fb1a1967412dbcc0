"""Submissions with a unique key beside those without one, one by one and many together.

Each submission has a key of its own, as for the first job with it: that is the usual case. Together means
under one request id, so that both are created by one commit; a bulk without a key or a request id is written
in batches, which is a third measure. By the clock, and by the processors of this process and the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import count

import msgspec

from bench.jobs.contenders import chosen
from bench.jobs.places import Ground, ground_of, turn_folder
from bench.report import Line, Section
from bench.rounds import Pace, Prepare, Raced, Work, race_evenly
from bench.stores.cpu import Used
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.wire.jobs import JobSpec, Unique

PLAIN, UNIQUE = "without a key", "with a unique key"
AIM = 1.5
"""How many times as much of the processors a submission with a key may take, one by one and together."""
TOGETHER = 500

_RULE = Unique(by=("order",))
_TITLE = "Jobs: submissions with a unique key"


def run(pace: Pace) -> Section:
    """Measure the stores one after the other."""
    lines: list[Line] = []
    missed: list[str] = []
    for store in chosen(pace.stores, ()):
        with ground_of(store) as ground:
            for measure, raced in _raced(ground, pace).items():
                lines += [
                    Line(f"{ground.name}, {measure}", "µs a job", raced.taken),
                    Line("  on the processors", "µs", raced.used),
                ]
                missed += missed_in(f"{ground.name}, {measure}", lines[-1])
    return Section(_TITLE, PLAIN, lines=tuple(lines), missed=tuple(missed))


def missed_in(measure: str, used: Line) -> list[str]:
    """A sentence where the aim was not reached."""
    ratio = used.ratio(UNIQUE, PLAIN)
    if ratio <= AIM or "in batches" in measure:
        return []
    return [
        f"on {measure}: a unique key should cost at most {AIM:g} times as much, and costs {ratio:.2f} times."
    ]


def _raced(ground: Ground, pace: Pace) -> dict[str, Raced]:
    with turn_folder() as folder, asyncio.Runner() as runner:
        port = EmbeddedOrchestrator(ground.place(folder).url)
        runner.run(port.connect())
        try:
            used_s = Used(ground.pid)
            singly = _contenders(runner, port, _one_by_one)
            together = _contenders(runner, port, _together)
            batches = {PLAIN: _contenders(runner, port, _in_batches)[PLAIN], UNIQUE: together[UNIQUE]}
            one = pace.job_submissions
            return {
                "one by one": race_evenly(singly, pace.store_rounds, one, operations=1, used_s=used_s),
                "500 together": race_evenly(
                    together, pace.store_rounds, 2, operations=TOGETHER, used_s=used_s
                ),
                "500, beside 500 in batches": race_evenly(
                    batches, pace.store_rounds, 2, operations=TOGETHER, used_s=used_s
                ),
            }
        finally:
            runner.run(port.disconnect())


_numbers = count(1)


def _specs(number: int, rule: Unique | None) -> list[JobSpec]:
    return [
        JobSpec(task="bench", input=msgspec.Raw(b'{"order":%d}' % next(_numbers)), unique=rule)
        for _ in range(number)
    ]


async def _one_by_one(port: EmbeddedOrchestrator, specs: Sequence[JobSpec]) -> None:
    for spec in specs:
        await port.services.jobs.submit_many([spec])


async def _together(port: EmbeddedOrchestrator, specs: Sequence[JobSpec]) -> None:
    for start in range(0, len(specs), TOGETHER):
        name = f"bench {next(_numbers)}"
        await port.services.jobs.submit_many(specs[start : start + TOGETHER], request_id=name)


async def _in_batches(port: EmbeddedOrchestrator, specs: Sequence[JobSpec]) -> None:
    await port.services.jobs.submit_many(specs)


def _contenders(
    runner: asyncio.Runner, port: EmbeddedOrchestrator, submit: Callable[..., object]
) -> dict[str, Prepare]:
    size = 1 if submit is _one_by_one else TOGETHER

    def preparing(rule: Unique | None) -> Prepare:
        def prepare(repetitions: int) -> Work:
            specs = _specs(repetitions * size, rule)
            return lambda: runner.run(submit(port, specs))  # type: ignore[arg-type]

        return prepare

    return {PLAIN: preparing(None), UNIQUE: preparing(_RULE)}
