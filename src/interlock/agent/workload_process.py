"""The process of one workload: prepares it, starts it on time, drives it, and cleans up.

    python -m interlock.agent.workload_process DESCRIPTOR

Over the descriptor the agent sends the order and the stop, and the process sends its measurements. When
the agent is gone the warden ends the process.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
import traceback
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import msgspec

from interlock.agent.load import PacedLoad
from interlock.agent.port import Workload, load_kind
from interlock.agent.protocol import (
    MAX_LINE_BYTES,
    FromChild,
    Order,
    Started,
    Up,
    WorkloadEnded,
    line_of,
    short_error,
    to_child,
)

GATHER_S = 0.1
"""Interval of aggregating the measurements between two samples."""
STOP_S = 2.0
"""Time for a workload to stop before it is cancelled."""
LATE_S = 1.0
"""Tolerance after the end of the time, for a workload that drives itself."""
NAP_S = 0.005
"""Time before the start that is slept without the event loop, whose timers are coarse."""
SPIN_NS = 200_000
"""Time before the start that is spent spinning, because waking up takes longer."""


def main() -> None:
    """Run the workload of the descriptor; threads that are left are abandoned."""
    asyncio.run(_converse(int(sys.argv[1])))
    sys.stdout.flush()
    os._exit(0)


async def _converse(descriptor: int) -> None:
    ours = socket.socket(fileno=descriptor)
    reader, writer = await asyncio.open_connection(sock=ours, limit=MAX_LINE_BYTES)
    order = to_child(await reader.readline())
    if not isinstance(order, Order):
        return
    sys.path[:] = order.path
    execution = _Execution(order, writer)
    execution.send(Up())
    listening = asyncio.create_task(execution.listen(reader))
    await execution.execute()
    listening.cancel()
    with suppress(ConnectionError):
        await writer.drain()
        writer.close()
        await writer.wait_closed()


class _Execution:
    """Execution of one workload, from loading its class to the last message."""

    def __init__(self, order: Order, writer: asyncio.StreamWriter) -> None:
        self._order = order
        self._writer = writer
        self._load = PacedLoad(order)
        self._stop = asyncio.Event()

    def send(self, word: FromChild) -> None:
        """Send a message to the agent."""
        if not self._writer.is_closing():
            self._writer.write(line_of(word))

    async def listen(self, reader: asyncio.StreamReader) -> None:
        """Stop on the next message or on the end of the agent."""
        with suppress(ConnectionError):
            await reader.readline()
        self._load.stop()
        self._stop.set()

    async def execute(self) -> None:
        """Prepare, wait for the start, run, clean up, and report the outcome."""
        error = None
        try:
            workload = self._load_workload()
            try:
                await self._unless_stopped(workload.prepare())
                await self._until_start()
                if not self._stop.is_set():
                    await self._run(workload)
            finally:
                await workload.cleanup()
        except Exception as caught:  # noqa: BLE001 - any exception is the outcome
            traceback.print_exc()  # for the agent's log; the controller gets one line
            error = _error_with_place(caught)
        self._send_sample()
        self.send(WorkloadEnded(error=error))

    def _load_workload(self) -> Workload[Any]:
        kind = load_kind(self._order.home)
        return kind(msgspec.json.decode(self._order.spec, type=kind.spec_type))

    async def _until_start(self) -> None:
        """Wait until exactly the start; it is late when preparing took longer."""
        left_s = (self._order.start_at_ns - time.monotonic_ns()) / 1e9
        if left_s > NAP_S:
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s - NAP_S):
                    await self._stop.wait()
        if self._stop.is_set():
            return
        time.sleep(max(0.0, (self._order.start_at_ns - time.monotonic_ns() - SPIN_NS) / 1e9))
        while time.monotonic_ns() < self._order.start_at_ns:
            pass
        self._load.begin()
        late_ns = self._load.start_ns - self._order.start_at_ns
        self.send(Started(at_unix_ns=time.time_ns(), late_ns=late_ns))

    async def _run(self, workload: Workload[Any]) -> None:
        sampling = asyncio.create_task(self._sample())
        try:
            longest_s = self._order.duration_s + self._order.drain_s + LATE_S
            await self._unless_stopped(workload.run(self._load), longest_s, STOP_S)
        finally:
            sampling.cancel()

    async def _sample(self) -> None:
        """Send samples at whole intervals since the common start.

        Its own start may have been later.
        """
        every_ns = round(self._order.sample_every_s * 1e9)
        number = self._since_start_ns // every_ns + 1
        while True:
            left_s = (number * every_ns - self._since_start_ns) / 1e9
            await asyncio.sleep(min(max(left_s, 0.0), GATHER_S))
            if self._since_start_ns >= number * every_ns:
                self._send_sample()
                number = self._since_start_ns // every_ns + 1
            else:
                self._load.counting.gather()

    @property
    def _since_start_ns(self) -> int:
        return time.monotonic_ns() - self._order.start_at_ns

    def _send_sample(self) -> None:
        """Send the measurements since the last sample."""
        sample = self._load.counting.take(max(self._load.elapsed_ns, 0))
        sample.backlog = self._load.backlog
        self.send(sample)

    async def _unless_stopped(
        self, doing: Coroutine[Any, Any, None], longest_s: float | None = None, stop_s: float = 0.0
    ) -> None:
        """Await a coroutine until it ends, a stop is requested, or time is up."""
        task, stopped = asyncio.create_task(doing), asyncio.create_task(self._stop.wait())
        await asyncio.wait((task, stopped), timeout=longest_s, return_when=asyncio.FIRST_COMPLETED)
        if stopped.done() and stop_s and not task.done():
            await asyncio.wait((task,), timeout=stop_s)
        for each in (task, stopped):
            each.cancel()
        await asyncio.wait((task, stopped))
        if not task.cancelled():
            task.result()


def _error_with_place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""  # noqa: PTH119
    return short_error(error) + place


if __name__ == "__main__":
    main()
