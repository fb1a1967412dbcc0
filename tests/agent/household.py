"""An agent in the test's own event loop, whose workloads are no processes: what they do a test says."""

from __future__ import annotations

import asyncio
import io
from typing import Any

from interlock.agent.execution import ReceiveFromWorkload, WriteLine
from interlock.agent.port import offered_kinds
from interlock.agent.protocol import LoadSample, Order, Started
from interlock.agent.settings import AgentSettings
from interlock.agent.state import AgentState, Clocks
from interlock.agent.validation import RequestedWorkload
from interlock.lifecycles.durations import DEFAULTS, Durations
from interlock.worker.telemetry import make_log


class TestFamily:
    """A workload that ends when it is told to, unless it is deaf to that."""

    __test__ = False

    def __init__(self, order: Order, receive: ReceiveFromWorkload, _line: WriteLine) -> None:
        self.order = order
        self.receive = receive
        self.heard: list[str] = []
        self.deaf_to: set[str] = set()
        self.error: str | None = None
        self.over = asyncio.Event()

    async def ended(self) -> str | None:
        await self.over.wait()
        return self.error

    def request_stop(self) -> None:
        self._told("ask")

    def terminate(self) -> None:
        self._told("terminate")

    def kill(self) -> None:
        self._told("kill")

    def survivors(self) -> int:
        return 0 if self.over.is_set() else 1

    def work(self, operations: int) -> None:
        self.receive(Started(at_unix_ns=1, late_ns=0))
        self.receive(LoadSample(elapsed_ns=10**9, operations=operations, counts={1_000: operations}))

    def end(self, error: str | None = None) -> None:
        self.error = error
        self.over.set()

    def _told(self, what: str) -> None:
        self.heard.append(what)
        if what not in self.deaf_to:
            self.over.set()


EPOCH_NS = 1_800_000_000 * 10**9


class Household:
    """The state of an agent and the processes it has started; its clock is that of the event loop."""

    def __init__(self, durations: Durations = DEFAULTS) -> None:
        self.set_ahead_ns = 0
        """By how much the wall clock was set ahead."""
        self._loop = asyncio.get_running_loop()
        self.families: list[TestFamily] = []
        self.log = io.StringIO()
        self.agent_state = AgentState(
            AgentSettings(durations=durations),
            offered_kinds(),
            make_log("debug", "json", self.log),
            self._spawn,
            Clocks(wall_ns=self.wall_ns, monotonic_ns=self.monotonic_ns),
        )

    def wall_ns(self) -> int:
        return EPOCH_NS + self.set_ahead_ns + self.monotonic_ns()

    def monotonic_ns(self) -> int:
        return round(self._loop.time() * 1e9)

    def _spawn(self, order: Order, receive: ReceiveFromWorkload, line: WriteLine) -> TestFamily:
        self.families.append(TestFamily(order, receive, line))
        return self.families[-1]

    @property
    def family(self) -> TestFamily:
        return self.families[-1]

    def asked(self, workload_id: str, **more: Any) -> RequestedWorkload:
        return RequestedWorkload(workload_id=workload_id, kind="sleep", **{"prepare_s": 0.0, **more})
