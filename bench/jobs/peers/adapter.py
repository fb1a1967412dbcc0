"""A contender as the bench sees it: one process that answers one JSON object per line with another.

    prepare                      an empty database becomes one that this contender can use
    submit  {jobs, bulk}         that many jobs, in bulk or one call each; answers the seconds
    start   {jobs, workers}      real worker processes, which stop at the gate in their first job
    go      {within_s}           opens the gate; answers when all have run and the *store* says that they have
    latency {rounds}             with an idle worker: from the call of submit to the handler's first line
    stop                         ends the workers
    close                        lets go of everything

Each contender is a script with a subclass of `Adapter`; it runs in a virtual environment of its own,
so nothing here needs more than Python itself. What it measures it measures here, next to the clock.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic_ns, perf_counter
from typing import Any

from bench.jobs.peers.handler import GATE, MOMENT, SEEN, TOUCHED
from bench.jobs.peers.workers import Workers

URL, FOLDER, CONCURRENCY = "BENCH_URL", "BENCH_FOLDER", "BENCH_CONCURRENCY"
"""Names in the environment, for contenders that have to know it when they are imported."""

WARM_UP = 5
LATEST_S = 30.0
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 0.25
_QUIET_S = (0.02, 0.08)
"""Between two jobs that are timed alone: long enough to be idle, and never in step with a poll."""


class Misfit(Exception):
    """A contender has not done what it was asked for; the sentence says what."""


class Adapter:
    """What a contender has to be able to do; the jobs of a turn are numbered from 0."""

    bulk = True
    """Whether it has a call that submits many jobs at once."""
    concurrency = 1
    """How much one worker process does at once at its fastest."""

    @property
    def url(self) -> str:
        """The database of this turn."""
        return os.environ[URL]

    async def open(self) -> None:
        """Make the tables and whatever else is needed, and connect."""

    async def close(self) -> None:
        """Disconnect."""

    async def submit_one(self, number: int) -> None:
        """Submit the job `tick(number)`."""
        raise NotImplementedError

    async def submit_bulk(self, numbers: range) -> None:
        """Submit the jobs `tick(number)` at once."""
        raise NotImplementedError

    async def submit_touch(self, number: int) -> None:
        """Submit the job `touch(number)`."""
        raise NotImplementedError

    async def done(self, jobs: int) -> int:
        """How many of so many jobs the store says are done."""
        raise NotImplementedError

    async def left(self) -> int:
        """How many jobs the store has that are not done."""
        raise NotImplementedError

    def worker(self, name: str) -> list[str]:
        """The command of a worker process; `concurrency_here` is how much it may do at once."""
        raise NotImplementedError


def concurrency_here() -> int:
    """What a worker process was told; see `_Turn.start`."""
    return int(os.environ[CONCURRENCY])


class _Turn:
    """Answers what the bench asks, one thing after the other."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._folder = Path(os.environ[FOLDER])
        self._jobs = 0
        self._workers = Workers(self._folder)

    async def prepare(self) -> dict[str, Any]:
        await self._adapter.open()
        return {}

    async def submit(self, jobs: int, bulk: bool) -> dict[str, Any]:
        numbers = range(self._jobs, self._jobs + jobs)
        self._jobs = numbers.stop
        bulk = bulk and self._adapter.bulk
        start = perf_counter()
        if bulk:
            await self._adapter.submit_bulk(numbers)
        else:
            for number in numbers:
                await self._adapter.submit_one(number)
        return {"seconds": perf_counter() - start, "bulk": bulk}

    async def start(self, workers: int, at_once: int | None = None) -> dict[str, Any]:
        """Start workers; none is given so much at once that the others would find nothing to begin with."""
        (self._folder / "seen").write_bytes(bytes(self._jobs))
        os.environ[SEEN] = str(self._folder / "seen")
        os.environ[GATE] = str(self._folder / "gate")
        most = min(self._adapter.concurrency, at_once or self._adapter.concurrency)
        os.environ[CONCURRENCY] = str(max(1, min(most, self._jobs // (4 * workers))))
        self._workers.open_for_waiting(self._folder / "gate")
        self._workers.start([self._adapter.worker(f"worker-{place}") for place in range(workers)])
        self._workers.wait_at_the_gate()
        return {"waiting": workers}

    async def go(self, within_s: float) -> dict[str, Any]:
        """Open the gate; once every job was ticked off, ask the store until it says so as well.

        Not before, because to count what is done takes the longer the more there is, and each store differs.
        """
        held_mb: list[float] = []
        start = now = perf_counter()
        self._workers.go()
        while (done := await self._done()) < self._jobs:
            ticked, now = self._ticked(), perf_counter()
            self._workers.check_alive()
            if now - start > within_s:
                raise Misfit(f"{ticked} of {self._jobs} jobs have run after {within_s:g} s, {done} are done.")
            if len(held_mb) == 0 and ticked * 5 >= self._jobs:
                held_mb.append(self._workers.held_mb())
            await asyncio.sleep(pause_s(self._jobs, ticked, now - start))
        seconds = perf_counter() - start
        held_mb.append(self._workers.held_mb())
        seen = self._seen()
        return {
            "seconds": seconds,
            "done": done,
            "left": await self._adapter.left(),
            "never": seen.count(0),
            "twice": len(seen) - seen.count(0) - seen.count(1),
            "held_mb": held_mb,
        }

    async def _done(self) -> int:
        """How many are done by the store's word, of which nobody needs to know before all have run."""
        return await self._adapter.done(self._jobs) if self._ticked() == self._jobs else 0

    def _ticked(self) -> int:
        """How many jobs have run."""
        return self._jobs - self._seen().count(0)

    def _seen(self) -> bytes:
        return (self._folder / "seen").read_bytes()

    async def latency(self, rounds: int) -> dict[str, Any]:
        """One job at a time; the first ones make everybody warm and are not counted."""
        os.environ[CONCURRENCY] = str(self._adapter.concurrency)
        os.environ[TOUCHED] = str(self._folder / "touched")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as touched:
            touched.bind(os.environ[TOUCHED])
            touched.settimeout(LATEST_S)
            self._workers.start([self._adapter.worker("worker-0")])
            quiet = random.Random(1)
            micros = []
            for number in range(WARM_UP + rounds):
                await asyncio.sleep(quiet.uniform(*_QUIET_S))
                micros.append(await self._one_alone(touched, number))
        return {"micros": micros[WARM_UP:], "held_mb": self._workers.held_mb()}

    async def _one_alone(self, touched: socket.socket, number: int) -> float:
        start = monotonic_ns()
        await self._adapter.submit_touch(number)
        try:
            reported, began = MOMENT.unpack(touched.recv(MOMENT.size))
        except TimeoutError:
            raise Misfit(f"job {number} has not begun after {LATEST_S:g} s.") from None
        if reported != number:
            raise Misfit(f"job {reported} ran when it was the turn of {number}.")
        return float(began - start) / 1e3

    async def stop(self) -> dict[str, Any]:
        self._workers.stop()
        return {}

    async def close(self) -> dict[str, Any]:
        self._workers.stop()
        await self._adapter.close()
        return {}


def pause_s(jobs: int, done: int, taken_s: float) -> float:
    """How long to leave the store alone: a quarter of what is left, by what was done so far."""
    if done == 0:
        return _SHORTEST_PAUSE_S * 4
    left_s = (jobs - done) * taken_s / done
    return min(_LONGEST_PAUSE_S, max(_SHORTEST_PAUSE_S, left_s / 4))


def serve(adapter: Adapter) -> None:
    """Answer until the bench closes the pipe; whatever is printed meanwhile goes to the log."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    turn = _Turn(adapter)
    try:
        with asyncio.Runner() as runner:
            for line in sys.stdin:
                answers.write(json.dumps(_answer(runner, turn, json.loads(line))) + "\n")
                answers.flush()
    finally:
        with suppress(OSError):
            answers.close()
        turn._workers.stop()  # noqa: SLF001 - the bench has gone, so nobody else does


def _answer(runner: asyncio.Runner, turn: _Turn, request: dict[str, Any]) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = runner.run(getattr(turn, request.pop("do"))(**request))
    except Exception as error:  # noqa: BLE001 - the bench is told, whatever it was
        return {"error": f"{type(error).__name__}: {error}"}
    return answer


def python(*words: str) -> list[str]:
    """A command for the interpreter of this virtual environment."""
    return [sys.executable, *words]


def own_worker(contender: str, name: str) -> list[str]:
    """A worker that the contender's module here starts with its `work`."""
    return python("-m", "bench.jobs.peers", contender, "work", name)


def program(name: str, *words: str) -> list[str]:
    """A command for a program of this virtual environment."""
    return [str(Path(sys.executable).parent / name), *words]


def batches(numbers: range, size: int) -> Sequence[range]:
    """The same numbers, so many at a time."""
    return [
        range(start, min(start + size, numbers.stop)) for start in range(numbers.start, numbers.stop, size)
    ]
