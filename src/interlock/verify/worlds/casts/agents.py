"""An agent: the service and the desk of production, on a machine whose clock is off, drifts and is set.

It is what `interlock agent` has behind its port; TLS, tokens and health are not part of a world, and the
processes of its workloads are drawn (`families`).
"""

from __future__ import annotations

import asyncio
from typing import Any, TextIO, cast

from grpc import aio

from interlock.agent.clocks import Clocks
from interlock.agent.desk import Desk
from interlock.agent.family import Hear, Line
from interlock.agent.kinds import Offered
from interlock.agent.service import AgentService
from interlock.agent.settings import AgentSettings
from interlock.agent.words import Order
from interlock.lifecycles.workload import WORKLOAD
from interlock.verify.worlds.casts.families import DrawnFamily, DrawnLoad, Household, end_of, up_of
from interlock.verify.worlds.casts.wires import WireServer
from interlock.verify.worlds.casts.workers import Alarm
from interlock.verify.worlds.fleets import Life
from interlock.verify.worlds.judge_fleet import FleetJudge
from interlock.verify.worlds.stage import Process
from interlock.wire.fleet.fleet_pb2_grpc import add_AgentServicer_to_server
from interlock.worker.logs import make_log
from interlock.worker.signals import Shutdown

SAMPLE_EVERY_S = 5.0
KINDS = {DrawnLoad.kind: Offered(f"{DrawnLoad.__module__}:{DrawnLoad.__name__}", DrawnLoad)}
LAST_WORDS_S = 1.0
"""How long what was said last may take to arrive before the agent goes, as elsewhere."""
RUN, START, ABORT, STATUS = "RunWorkloadWithLiveStats", "StartWorkload", "AbortWorkload", "GetStatus"


class Agent:
    """What others may ask for of an agent that lives."""

    def __init__(self, process: Process, desk: Desk, judge: FleetJudge) -> None:
        self.desk = desk
        self.server = WireServer(process, AgentEars(process, desk, judge))
        self.shutdown = Shutdown(process.loop.time)

    @property
    def is_idle(self) -> bool:
        """Whether it has no workload."""
        return self.desk.state in WORKLOAD.resting


class AgentCast:
    """An agent, from its start to its end, again and again on the same machine."""

    def __init__(self, judge: FleetJudge, seed: int) -> None:
        self._judge = judge
        self._seed = seed
        self.set_ns = 0
        """By how much people have set the clock of the machine."""

    async def live(self, process: Process) -> None:
        """Serve until somebody asks it to go; in the end its workload is stopped."""
        clocks = self._clocks(process)
        home = Household(process.name, self._seed, clocks, self._judge)
        settings = AgentSettings(sample_every_s=SAMPLE_EVERY_S, durations=process.stage.world.durations)
        log = make_log("error", "json", cast(TextIO, Alarm(process.stage.watcher)))

        def spawn(order: Order, hear: Hear, _line: Line) -> DrawnFamily:
            assert desk.present is not None
            assert desk.present.checked is not None
            name, end = desk.present.workload_id, end_of(order, process.name)
            up_s = up_of(name, end, self._seed)
            life = Life(process, name, end, up_s=up_s, prepare_s=desk.present.checked.prepare_s)
            return DrawnFamily(home, order, hear, life)

        desk = Desk(settings, KINDS, log, spawn, clocks)
        agent = Agent(process, desk, self._judge)
        service = AgentService(desk, process.host.ids())
        add_AgentServicer_to_server(service, cast(aio.Server, agent.server))
        process.role = agent
        await _asked_to_go(agent.shutdown)
        await desk.close()
        await asyncio.sleep(LAST_WORDS_S)

    def _clocks(self, process: Process) -> Clocks:
        """Both are by the same oscillator; people can set only one of them."""

        def monotonic_ns() -> int:
            return round(process.loop.time() * 1e9)

        base_ns = round(process.local().timestamp() * 1e9) - monotonic_ns()
        return Clocks(wall_ns=lambda: base_ns + self.set_ns + monotonic_ns(), monotonic_ns=monotonic_ns)


class AgentEars:
    """Tells the judge what an agent hears and says."""

    def __init__(self, process: Process, desk: Desk, judge: FleetJudge) -> None:
        self._process = process
        self._desk = desk
        self._judge = judge
        self._before: object = None

    def hears(self, method: str, request: Any) -> None:
        """A request is about to be answered."""
        if method == RUN:
            free = self._desk.state in WORKLOAD.resting
            self._judge.asked(self._process, request.workload_id, free=free)
        self._before = self._stands()

    def says(self, method: str, request: Any, message: Any) -> None:
        """An answer is about to go."""
        if method == RUN:
            self._judge.said(self._process, request.workload_id, message.status)
        elif method == STATUS and message.state not in WORKLOAD.resting:
            self._judge.busy(self._process, message.workload_id)
        elif method == START:
            clocks = self._desk.clocks
            ahead_ns = request.start_at_unix_ns - clocks.wall_ns()
            self._judge.told(self._process, request.workload_id, clocks.monotonic_ns(), ahead_ns)
        if method in (START, ABORT):
            self._compare(request)

    def refuses(self, method: str, request: Any) -> None:
        """The request is refused."""
        if method == RUN:
            self._judge.busy(self._process, self._desk.record.workload_id or "")
        elif method in (START, ABORT):
            self._compare(request)

    def alone(self, request: Any) -> None:
        """Nobody listens any more."""
        self._judge.alone(self._process, request.workload_id)

    def _compare(self, request: Any) -> None:
        if request.workload_id != self._desk.record.workload_id:
            changed = self._stands() != self._before
            self._judge.old_word(self._process, request.workload_id, changed=changed)

    def _stands(self) -> object:
        present = self._desk.present
        return self._desk.state, self._desk.record, present.start_at_ns if present is not None else None


async def _asked_to_go(shutdown: Shutdown) -> None:
    asked = asyncio.Event()
    shutdown.subscribe(asked.set)
    await asked.wait()
