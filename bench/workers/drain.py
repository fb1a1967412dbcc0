"""What one job costs the worker: processor time and Python calls, of two checkouts taking turns.

    python -m bench.workers.drain                       # this checkout
    python -m bench.workers.drain --against /path/to/other/checkout --rounds 5
    python -m bench.workers.drain --calls               # count Python calls (cProfile) instead

One process submits alike jobs to a fresh store and then drains them with one worker. Only the drain is
counted, as processor time of that process, which a busy machine changes less than the clock. Each turn is a
process of its own with `PYTHONPATH` set to a checkout, so the two are never in one interpreter.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import os
import pstats
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from time import process_time

HERE = Path(__file__).parents[2]
STORES = ("sqlite", "postgresql")
HANDLERS = ("async", "sync")


def main() -> None:
    """Measure, or take one turn."""
    options = _parser().parse_args()
    if options.turn:
        print(json.dumps(_turn(options)))
        return
    checkouts = {"here": HERE} | ({"other": options.against} if options.against else {})
    for store in options.store or STORES:
        for concurrency in options.concurrency or (500, 10):
            for handler in options.handler or HANDLERS:
                _compare(checkouts, options, [store, str(concurrency), handler])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--against", type=Path, help="another checkout to take turns with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--store", action="append", choices=STORES)
    parser.add_argument("--concurrency", action="append", type=int)
    parser.add_argument("--handler", action="append", choices=HANDLERS)
    parser.add_argument("--calls", action="store_true", help="count Python calls a job")
    parser.add_argument("--turn", nargs=4, metavar=("STORE", "URL", "N", "HANDLER"), help=argparse.SUPPRESS)
    return parser


def _compare(checkouts: dict[str, Path], options: argparse.Namespace, case: Sequence[str]) -> None:
    found: dict[str, list[dict[str, float]]] = {name: [] for name in checkouts}
    for _ in range(1 if options.calls else options.rounds):
        for name, checkout in checkouts.items():
            found[name].append(_in_process(checkout, options, case))
    for figure in ("calls", "worker_calls") if options.calls else ("cpu_us",):
        figures = {name: [turn[figure] for turn in turns] for name, turns in found.items()}
        words = ", ".join(
            f"{name} {median(them):.1f} ({min(them):.1f} to {max(them):.1f})"
            for name, them in figures.items()
        )
        print(f"{case[0]}, {case[1]} at once, {case[2]} handlers, {figure} a job: {words}", flush=True)


def _in_process(checkout: Path, options: argparse.Namespace, case: Sequence[str]) -> dict[str, float]:
    store, concurrency, handler = case
    with _store(store) as url:
        program = [sys.executable, str(Path(__file__)), "--jobs", str(options.jobs)]
        program += ["--calls"] if options.calls else []
        program += ["--turn", store, url, concurrency, handler]
        env = {**os.environ, "PYTHONPATH": f"{checkout / 'src'}:{HERE}"}
        done = subprocess.run(program, env=env, check=True, stdout=subprocess.PIPE, text=True)
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


@contextmanager
def _store(kind: str) -> Iterator[str]:
    with ExitStack() as stack:
        if kind == "sqlite":
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="interlock-bench-"))
            yield f"sqlite:///{folder}/jobs.db"
        else:
            from bench.stores.databases import POSTGRES_SETTINGS  # noqa: PLC0415
            from interlock.testing.servers import postgres_server  # noqa: PLC0415

            yield stack.enter_context(postgres_server(settings=POSTGRES_SETTINGS)).new_database()


def _turn(options: argparse.Namespace) -> dict[str, float]:
    _, url, concurrency, handler = options.turn
    profile = cProfile.Profile() if options.calls else None
    cpu_s = asyncio.run(_drain(url, int(concurrency), handler, options.jobs, profile))
    found = {"cpu_us": cpu_s * 1e6 / options.jobs}
    if profile is not None:
        found |= _calls(profile, options.jobs)
    return found


def _calls(profile: cProfile.Profile, jobs: int) -> dict[str, float]:
    """Calls of Python functions a job: all of them, and those of the worker package."""
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    calls = {"calls": 0.0, "worker_calls": 0.0}
    for (path, _, _), (_, count, *_) in stats.items():
        if path != "~":
            calls["calls"] += count / jobs
            calls["worker_calls"] += count / jobs * ("interlock/worker/" in path)
    if "BENCH_PROFILE" in os.environ:
        pstats.Stats(profile).dump_stats(os.environ["BENCH_PROFILE"])
    return calls


async def _drain(
    url: str, concurrency: int, handler: str, jobs: int, profile: cProfile.Profile | None
) -> float:
    from interlock.client import Interlock  # noqa: PLC0415 - of the checkout whose turn it is
    from interlock.systems.embedded import EmbeddedOrchestrator  # noqa: PLC0415
    from interlock.worker.entry import calm_collector  # noqa: PLC0415
    from interlock.worker.process import WorkerProcess  # noqa: PLC0415
    from interlock.worker.settings import WorkerSettings  # noqa: PLC0415
    from interlock.worker.tasks import Registry  # noqa: PLC0415
    from interlock.worker.telemetry import make_log  # noqa: PLC0415

    registry, ended, all_ended = Registry(), 0, asyncio.Event()
    loop = asyncio.get_running_loop()

    def one_more() -> None:
        nonlocal ended
        ended += 1
        if ended == jobs:
            loop.call_soon_threadsafe(all_ended.set)

    @registry.task(name="async")
    async def _(number: int) -> None:  # noqa: ARG001
        one_more()

    @registry.task(name="sync")
    def _(number: int) -> None:  # noqa: ARG001
        one_more()

    async with Interlock(url) as client:
        task = registry.get(handler)
        for start in range(0, jobs, 5_000):
            await client.submit_many([task.spec(n) for n in range(start, min(jobs, start + 5_000))])
    settings = WorkerSettings(name="bench", concurrency=concurrency, log_level="warning")
    process = WorkerProcess(
        settings, registry, lambda: EmbeddedOrchestrator(url), incarnation="1", log=make_log("warning")
    )
    calm_collector()
    began_s = process_time()
    if profile is not None:
        profile.enable()
    running = asyncio.create_task(process.run())
    await all_ended.wait()
    process.shutdown.request()
    await running
    if profile is not None:
        profile.disable()
    assert process.data.processed == jobs, process.data
    return process_time() - began_s


if __name__ == "__main__":
    main()
