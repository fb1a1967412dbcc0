"""How long ten tenants with one job each wait beside a tenant with a great many."""

from __future__ import annotations

import asyncio
from time import perf_counter

from bench.jobs.contenders import chosen
from bench.jobs.places import ground_of, turn_folder
from bench.report import Line, Section
from bench.rounds import Figure, Pace
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.wire.jobs import JobSpec
from interlock.wire.limits import LimitSpec
from interlock.worker.process import WorkerProcess
from interlock.worker.settings import WorkerSettings
from interlock.worker.tasks import Registry
from interlock.worker.telemetry import make_log

US = "interlock"
AIM_S = 5.0
SMALL = 10
LIMIT = LimitSpec(max=5)
_HANDLER_S = 0.02
_PORTION = 5_000


def run(pace: Pace) -> Section:
    """Fill, then measure, the databases one after the other."""
    waited: dict[str, list[float]] = {}
    for store in chosen(pace.stores, ()):
        with ground_of(store) as ground, turn_folder() as folder:
            waited[ground.name] = asyncio.run(_waited(ground.place(folder).url, pace.crowd))
    lines = [
        Line(f"{name}, {how}", "ms", {US: Figure((time_s * 1e3,))})
        for name, times in waited.items()
        for how, time_s in (("the first", times[0]), ("the last", times[-1]))
    ]
    return Section(
        f"Scheduling: {SMALL} tenants with a job each beside one with {pace.crowd:,}, until they begin",
        US,
        lines=tuple(lines),
        missed=tuple(
            f"on {name} the last began after {times[-1]:.1f} s, and should within {AIM_S:g} s."
            for name, times in waited.items()
            if times[-1] > AIM_S
        ),
    )


async def _waited(url: str, crowd: int) -> list[float]:
    """How long each small tenant waited, shortest first, while a worker with ten slots was busy."""
    registry, begun, busy = Registry(), dict[str, float](), asyncio.Event()
    all_begun = asyncio.Event()

    @registry.task(name="bench")
    async def bench(tenant: str) -> None:
        if tenant == "large":
            busy.set()
        else:
            begun[tenant] = perf_counter()
            if len(begun) == SMALL:
                all_begun.set()
        await asyncio.sleep(_HANDLER_S)

    port = EmbeddedOrchestrator(url)
    await port.connect()
    await port.services.limits.declare("tenant:*", LIMIT, source="bench")

    def spec(tenant: str) -> JobSpec:
        return bench.options(limits=(f"tenant:{tenant}",)).spec(tenant)

    for start in range(0, crowd, _PORTION):
        await port.services.jobs.submit_many([spec("large")] * min(_PORTION, crowd - start))
    settings = WorkerSettings(name="bench", log_level="warning")
    worker = WorkerProcess(
        settings, registry, lambda: EmbeddedOrchestrator(url), incarnation="1", log=make_log("warning")
    )
    running = asyncio.create_task(worker.run())
    await busy.wait()
    submitted = perf_counter()
    await port.services.jobs.submit_many([spec(f"small-{number}") for number in range(SMALL)])
    await all_begun.wait()
    worker.shutdown.request()
    await running
    await port.disconnect()
    return sorted(began - submitted for began in begun.values())
