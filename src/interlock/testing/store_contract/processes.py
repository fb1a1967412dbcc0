"""Real processes that use the same database, for tests in which threads would prove too little.

A test asks another process to run one of the functions below on a store of its own. The process is
forked from one that has imported the stores and opened none; a pipe carries its answer, and before that its
progress. It ends with the test, or the test kills it.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import multiprocessing
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any, TypeAlias

from interlock.store.contract import Store
from interlock.store.records import Commit, Committed, Record
from interlock.testing.store_contract.builders import (
    PACKING,
    PATIENCE_S,
    Sender,
    claimed,
    creation,
    request,
    see,
    swept,
    take,
)
from interlock.testing.store_contract.suite import StoreOpener

RemoteWork: TypeAlias = Callable[..., Awaitable[Any]]
"""Work for another process, on a store of its own; a function of an importable module."""

_LIMIT_S = 2 * PATIENCE_S
_AT_MEETING, _CONTINUE = "at the meeting", "continue"


async def ask(opener: StoreOpener, work: RemoteWork, *arguments: Any) -> Any:
    """Run the work in another process and return its answer."""
    async with _process(opener, work, *arguments) as process:
        return await process.received()


async def ask_many(
    opener: StoreOpener, work: RemoteWork, arguments: Sequence[tuple[Any, ...]], *, meetings: int = 0
) -> list[Any]:
    """Run the work in one process for each argument; return their answers.

    All processes start together. `meetings` is the number of calls of `meet` in the work.
    """
    async with contextlib.AsyncExitStack() as stack:
        processes = [
            await stack.enter_async_context(_process(opener, work, *each, wait=True)) for each in arguments
        ]
        for _ in range(1 + meetings):
            for process in processes:
                assert await process.received() == _AT_MEETING
            for process in processes:
                process.pipe.send(_CONTINUE)
        return [await process.received() for process in processes]


async def kill_amid(opener: StoreOpener, work: RemoteWork, *arguments: Any) -> None:
    """Run the work in another process, and kill it with -9.

    It is killed when it reports something.
    """
    async with _process(opener, work, *arguments) as process:
        await process.received()
        assert process.kill() == -signal.SIGKILL


@dataclass(frozen=True, slots=True)
class _Process:
    """Another process, and the pipe to it."""

    process: BaseProcess
    pipe: Connection

    async def received(self) -> Any:
        """Return the next thing that the process sends."""
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self.pipe.fileno(), readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(self.pipe.fileno())
        try:
            return self.pipe.recv()
        except EOFError:
            raise AssertionError(f"The other process ended, with exit code {self.kill()}.") from None

    def kill(self) -> int | None:
        """Kill the process, unless it has ended; return its exit code."""
        self.process.kill()
        self.process.join()
        return self.process.exitcode


@asynccontextmanager
async def _process(
    opener: StoreOpener, work: RemoteWork, *arguments: Any, wait: bool = False
) -> AsyncIterator[_Process]:
    ours, theirs = multiprocessing.Pipe()
    order = (theirs, opener.make_store(), work, arguments, wait)
    process = _Process(_forks().Process(target=_work, args=order, daemon=True), ours)
    try:
        process.process.start()
        theirs.close()
        async with asyncio.timeout(_LIMIT_S):
            yield process
    finally:
        process.kill()
        ours.close()


def _forks() -> multiprocessing.context.ForkServerContext:
    """Return the context that starts processes: a fork server.

    It starts with the first of them. It has imported the stores that this process has. A fresh interpreter
    for each process took a third of a second, and a contract starts thirty.
    """
    context = multiprocessing.get_context("forkserver")
    stores = sorted(name for name in sys.modules if name.startswith("interlock.store."))
    context.set_forkserver_preload(["__main__", __name__, *stores])
    return context


_to_test: Connection
"""The pipe to the test, in the other process."""


def _work(
    pipe: Connection,
    make: Callable[[], Store],
    work: RemoteWork,
    arguments: tuple[Any, ...],
    wait: bool,
) -> None:
    """Do the work and send its answer, in the other process."""
    global _to_test  # noqa: PLW0603 - a process does one work
    _to_test = pipe

    async def run() -> Any:
        store = make()
        await store.open()
        if wait:
            meet()
        try:
            return await work(store, *arguments)
        finally:
            await store.close()

    pipe.send(asyncio.run(run()))


def tell(progress: str) -> None:
    """Send a point of the progress to the test."""
    _to_test.send(progress)


def meet() -> None:
    """Wait until all processes of `ask_many` have reached this point."""
    tell(_AT_MEETING)
    assert _to_test.recv() == _CONTINUE


# Work for the tests.


async def drain_by_claims(store: Store, batch: int) -> list[str]:
    """Claim until nothing is left.

    All processes make a first claim before this one continues.
    """
    got = await claimed(store, take(batch))
    meet()
    while some := await claimed(store, take(batch)):
        got += some
    return got


async def drain_by_sweeps(store: Store, batch: int) -> list[str]:
    """Sweep until nothing is due.

    All processes make a first sweep before this one continues.
    """
    got = await swept(store, batch)
    meet()
    while some := await swept(store, batch):
        got += some
    return got


async def claim_and_hang(store: Store, limit: int) -> None:
    """Stop for ever between claiming records and committing the decision."""

    def hang(_records: Sequence[Record], _now: datetime) -> list[Commit]:
        tell("holding")
        while True:
            signal.pause()

    await store.claim(take(limit), hang)


async def race_with_a_request(store: Store, first: int, count: int) -> list[Any]:
    """Make several commits at once with the same request."""

    async def race(number: int) -> Any:
        answer = b"%d" % number
        commit = Commit(changes=(creation(f"p{number}", note=PACKING),), request=request("r", answer=answer))
        return (await store.commit([commit]))[0]

    return list(await asyncio.gather(*(race(number) for number in range(first, first + count))))


async def write_entries(store: Store, writer: int, count: int) -> None:
    """Make many small commits, each with one entry."""
    for number in range(count):
        [outcome] = await store.commit([Commit(changes=(creation(f"w{writer}-{number:04}", note=PACKING),))])
        assert isinstance(outcome, Committed), outcome


async def just_open(store: Store) -> int:
    """Open the store only."""
    return await store.epoch()


async def look_at_the_clock(store: Store, skew_s: float) -> dict[str, Any]:
    """Use the time-dependent methods on a host whose own clock is wrong."""
    with _skewed_clocks(timedelta(seconds=skew_s)):
        return await _use_the_clock(store)


async def _use_the_clock(store: Store) -> dict[str, Any]:
    sender = Sender()
    now = await store.now()
    half_an_hour = timedelta(minutes=30)
    [in_time, too_late, _] = await store.commit(
        [
            Commit(changes=(creation("made"),), not_after=now + half_an_hour),
            Commit(changes=(creation("late"),), not_after=now - half_an_hour),
            Commit(request=request("r", ttl_s=half_an_hour.total_seconds())),
        ]
    )
    due: list[str] = []

    def remember(records: Sequence[Record], _now: datetime) -> list[Commit]:
        due.extend(record.id for record in records)
        return []

    await store.due(["parcel"], 10, remember)
    await store.claim(take(10), sender)
    return {
        "own": dt.datetime.now(UTC),
        "now": now,
        "created_at": (await see(store, "made")).created_at,
        "claimed_at": sender.times[0],
        "claimed": sender.names,
        "due": due,
        "remembered": await store.recall("r") is not None,
        "in_time": isinstance(in_time, Committed),
        "too_late": not isinstance(too_late, Committed),
    }


@contextlib.contextmanager
def _skewed_clocks(skew: timedelta) -> Iterator[None]:
    """Make the stores of this process read a wrong clock.

    They read it wherever Python provides it.
    """
    real_time, real_time_ns = time.time, time.time_ns

    class Skewed(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + skew

    modules = [module for name, module in sys.modules.items() if name.startswith("interlock.store")]
    users = [module for module in modules if getattr(module, "datetime", None) is datetime]
    time.time = lambda: real_time() + skew.total_seconds()
    time.time_ns = lambda: real_time_ns() + round(skew.total_seconds() * 1e9)
    _put_datetime(Skewed, users)
    try:
        yield
    finally:
        time.time, time.time_ns = real_time, real_time_ns
        _put_datetime(datetime, users)


def _put_datetime(kind: type[datetime], users: Sequence[ModuleType]) -> None:
    for module in (dt, *users):
        vars(module)["datetime"] = kind
