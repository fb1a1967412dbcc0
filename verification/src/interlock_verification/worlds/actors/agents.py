"""Agents.

Production's service on a machine whose clock is skewed, drifts and is set; and their load processes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TextIO, cast

import msgspec
from grpc import aio

from interlock.agent.execution import ReceiveFromWorkload, WriteLine
from interlock.agent.port import KindLocation, Load, Workload
from interlock.agent.protocol import LoadSample, Order, Started
from interlock.agent.server import AgentService
from interlock.agent.settings import AgentSettings
from interlock.agent.state import AgentState, Clocks
from interlock.lifecycles.workload import WORKLOAD
from interlock.wire.fleet.fleet_pb2_grpc import add_AgentServicer_to_server
from interlock.worker.host import Shutdown
from interlock.worker.telemetry import make_log
from interlock_verification.worlds.actors.grpc_transport import WireServer
from interlock_verification.worlds.actors.workers import Alarm
from interlock_verification.worlds.faults import Faults
from interlock_verification.worlds.judge_fleet import FleetJudge, WorkloadLife
from interlock_verification.worlds.network import ActorProcess, WorldNetwork
from interlock_verification.worlds.worlds import HOUR_S

UP_S = (0.05, 0.8)
"""Startup time of a process."""
SLOW_S = (4.0, 20.0)
STOPS_S = (0.0, 2.0)
"""Time of a cooperative process to stop."""
SURVIVES_S = 10.0
LATENCIES_NS = (900, 1_000, 1_100, 2_000)


class Lot(msgspec.Struct, frozen=True):
    """The spec of a workload in a world: how it ends on each agent."""

    ends: dict[str, str]


class DrawnLoad(Workload[Lot]):
    """The kind of workload in a world; an agent validates its spec, and starts no process."""

    kind = "drawn"
    spec_type = Lot

    async def run(self, load: Load) -> None:
        """Do nothing: it runs in no process."""


class SimulatedHost:
    """The machine of a workload process."""

    def __init__(self, agent: str, seed: int, clocks: Clocks, judge: FleetJudge) -> None:
        self.agent = agent
        self.seed = seed
        self.clocks = clocks
        self.judge = judge


class DrawnFamily:
    """The process of a workload; see `agent.execution.WorkloadFamily`."""

    def __init__(
        self, host: SimulatedHost, order: Order, receive: ReceiveFromWorkload, life: WorkloadLife
    ) -> None:
        self._host = host
        self._order = order
        self._receive = receive
        self._life = life
        self._drawn = random.Random(f"{host.seed}/{life.workload_id}/family")
        self._stop_requested = asyncio.Event()
        self._over = asyncio.Event()
        self._error: str | None = None
        self._up = False
        self._operations_per_s = 1 + self._drawn.randrange(40)
        life.survives_s = SURVIVES_S * self._drawn.random() if life.end == "undead" else 0.0
        host.judge.spawned(life)
        self._living = asyncio.create_task(self._live(), name=f"process of {life.workload_id}")

    async def ended(self) -> str | None:
        """Wait for the end; return the error or None.

        Cancelling the wait ends the process.
        """
        try:
            await self._over.wait()
        except asyncio.CancelledError:
            self._die("no caller waits for it any more")
            raise
        return self._error

    def request_stop(self) -> None:
        """Request a stop, which some ignore.

        A starting process is killed, as in production.
        """
        if not self._life.process.alive:
            return  # both processes are dead
        if not self._up:
            self.kill()
        elif self._life.end not in ("deaf", "stubborn", "undead"):
            self._stop_requested.set()

    def terminate(self) -> None:
        """Terminate it, which some ignore."""
        if self._life.end not in ("stubborn", "undead"):
            self._die("it was terminated")

    def kill(self) -> None:
        """Kill it; some survive for a while."""
        if self._over.is_set() or not self._life.process.alive:
            return
        self._host.judge.killed(self._life)
        if self._life.survives_s:
            asyncio.get_running_loop().call_later(self._life.survives_s, self._die, "it was killed")
        else:
            self._die("it was killed")

    def survivors(self) -> int:
        """Return the number of its processes."""
        return 0 if self._over.is_set() else 1

    # Its life

    async def _live(self) -> None:
        """Start, wait for the start time, work, and end as drawn."""
        await asyncio.sleep(self._life.up_ns / 1e9)
        self._up = True
        if self._life.end == "stillborn":
            self._end("it could not prepare")
            return
        if not await self._asked_within((self._order.start_at_ns - self._host.clocks.monotonic_ns()) / 1e9):
            started_ns = self._host.clocks.monotonic_ns()
            self._host.judge.began(self._life, started_ns)
            late_ns = started_ns - self._order.start_at_ns
            self._receive(Started(at_unix_ns=self._host.clocks.wall_ns(), late_ns=late_ns))
            await self._work(started_ns)
        if self._stop_requested.is_set():
            await asyncio.sleep(self._drawn.uniform(*STOPS_S))
        self._end("this load is broken" if self._life.end == "fails" else None)

    async def _work(self, started_ns: int) -> None:
        """Report operations periodically, for the requested duration.

        It may be longer or shorter, as drawn.
        """
        share = {"early": self._drawn.random(), "fails": self._drawn.random(), "hangs": 1e6}
        lasts_s = self._order.duration_s * share.get(self._life.end, 1.0)
        done_s, stopping = 0.0, False
        while done_s < lasts_s and not stopping:
            next_s = min(lasts_s, done_s + self._order.sample_every_s)
            ahead_s = next_s - (self._host.clocks.monotonic_ns() - started_ns) / 1e9
            stopping = await self._asked_within(ahead_s)
            elapsed_ns = self._host.clocks.monotonic_ns() - started_ns
            self._report_sample(round((elapsed_ns / 1e9 - done_s) * self._operations_per_s), elapsed_ns)
            done_s = max(next_s, elapsed_ns / 1e9)

    def _report_sample(self, operations: int, elapsed_ns: int) -> None:
        if self._life.end == "mute":
            return
        self._life.operations += operations
        counts = {self._drawn.choice(LATENCIES_NS): operations} if operations else {}
        self._receive(LoadSample(elapsed_ns=elapsed_ns, operations=operations, counts=counts))

    async def _asked_within(self, seconds: float) -> bool:
        """Return whether it is asked to stop within the time."""
        if seconds > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._stop_requested.wait()
        return self._stop_requested.is_set()

    def _die(self, error: str) -> None:
        if not self._over.is_set():
            self._living.cancel()
            self._end(error)

    def _end(self, error: str | None) -> None:
        self._error = error
        self._over.set()
        self._host.judge.ended(self._life, well=error is None and not self._stop_requested.is_set())


def end_of(order: Order, agent: str) -> str:
    """Return how a workload ends on this agent."""
    ends: Mapping[str, str] = msgspec.json.decode(order.spec, type=Lot).ends
    return ends.get(agent, "ok")


def up_of(life_id: str, end: str, seed: int) -> float:
    """Return the startup time of the process."""
    return random.Random(f"{seed}/{life_id}/up").uniform(*(SLOW_S if end == "slow" else UP_S))


SAMPLE_EVERY_S = 5.0
KINDS = {DrawnLoad.kind: KindLocation(f"{DrawnLoad.__module__}:{DrawnLoad.__name__}", DrawnLoad)}
LAST_WORDS_S = 1.0
"""Time for the last messages to arrive before the agent ends."""
RUN, START, ABORT, STATUS = "RunWorkloadWithLiveStats", "StartWorkload", "AbortWorkload", "GetStatus"


class WorldAgent:
    """The interface of a live agent for others."""

    def __init__(self, process: ActorProcess, agent_state: AgentState, judge: FleetJudge) -> None:
        self.agent_state = agent_state
        self.server = WireServer(process, AgentEars(process, agent_state, judge))
        self.shutdown = Shutdown(process.loop.time)

    @property
    def is_idle(self) -> bool:
        """Whether it has no workload."""
        return self.agent_state.state in WORKLOAD.resting


class AgentActor:
    """An agent, restarted again and again on the same machine."""

    def __init__(self, judge: FleetJudge, seed: int) -> None:
        self._judge = judge
        self._seed = seed
        self.set_ns = 0
        """Total adjustment of the machine's clock."""

    async def live(self, process: ActorProcess) -> None:
        """Serve until told to shut down; then stop the workload."""
        clocks = self._clocks(process)
        host = SimulatedHost(process.name, self._seed, clocks, self._judge)
        settings = AgentSettings(sample_every_s=SAMPLE_EVERY_S, durations=process.network.world.durations)
        log = make_log("error", "json", cast(TextIO, Alarm(process.network.watcher)))

        def spawn(order: Order, receive: ReceiveFromWorkload, _line: WriteLine) -> DrawnFamily:
            assert agent_state.present is not None
            assert agent_state.present.checked is not None
            name, end = agent_state.present.workload_id, end_of(order, process.name)
            up_s = up_of(name, end, self._seed)
            life = WorkloadLife(
                process, name, end, up_s=up_s, prepare_s=agent_state.present.checked.prepare_s
            )
            return DrawnFamily(host, order, receive, life)

        agent_state = AgentState(settings, KINDS, log, spawn, clocks)
        agent = WorldAgent(process, agent_state, self._judge)
        service = AgentService(agent_state, process.host.ids())
        add_AgentServicer_to_server(service, cast(aio.Server, agent.server))
        process.role = agent
        await _asked_to_go(agent.shutdown)
        await agent_state.close()
        await asyncio.sleep(LAST_WORDS_S)

    def _clocks(self, process: ActorProcess) -> Clocks:
        """Return the clocks of the machine.

        They have one oscillator, and only the wall clock can be set.
        """

        def monotonic_ns() -> int:
            return round(process.loop.time() * 1e9)

        base_ns = round(process.local().timestamp() * 1e9) - monotonic_ns()
        return Clocks(wall_ns=lambda: base_ns + self.set_ns + monotonic_ns(), monotonic_ns=monotonic_ns)


class AgentEars:
    """Reports the messages of an agent to the judge."""

    def __init__(self, process: ActorProcess, agent_state: AgentState, judge: FleetJudge) -> None:
        self._process = process
        self._agent_state = agent_state
        self._judge = judge
        self._before: object = None

    def request_received(self, method: str, request: Any) -> None:
        """Report a request before it is answered."""
        if method == RUN:
            free = self._agent_state.state in WORKLOAD.resting
            self._judge.start_requested(self._process, request.workload_id, free=free)
        self._before = self._stands()

    def answer_sent(self, method: str, request: Any, message: Any) -> None:
        """Report a response before it is sent."""
        if method == RUN:
            self._judge.status_sent(self._process, request.workload_id, message.status)
        elif method == STATUS and message.state not in WORKLOAD.resting:
            self._judge.busy(self._process, message.workload_id)
        elif method == START:
            clocks = self._agent_state.clocks
            ahead_ns = request.start_at_unix_ns - clocks.wall_ns()
            self._judge.start_accepted(self._process, request.workload_id, clocks.monotonic_ns(), ahead_ns)
        if method in (START, ABORT):
            self._compare(request)

    def refuses(self, method: str, request: Any) -> None:
        """Report a refused request."""
        if method == RUN:
            self._judge.busy(self._process, self._agent_state.record.workload_id or "")
        elif method in (START, ABORT):
            self._compare(request)

    def alone(self, request: Any) -> None:
        """Report that the receiver has disconnected."""
        self._judge.alone(self._process, request.workload_id)

    def _compare(self, request: Any) -> None:
        if request.workload_id != self._agent_state.record.workload_id:
            changed = self._stands() != self._before
            self._judge.late_message(self._process, request.workload_id, changed=changed)

    def _stands(self) -> object:
        present = self._agent_state.present
        return (
            self._agent_state.state,
            self._agent_state.record,
            present.start_at_ns if present is not None else None,
        )


async def _asked_to_go(shutdown: Shutdown) -> None:
    requested = asyncio.Event()
    shutdown.subscribe(requested.set)
    await requested.wait()


CLOCK_SET = "clock set"
STEPS_S = (0.05, 0.5, 2.0, 30.0, 3_600.0)
"""Steps by which a clock is set, in both directions."""


def set_clocks(
    network: WorldNetwork, faults: Faults, casts: Mapping[str, AgentActor], judge: FleetJudge, until_s: float
) -> None:
    """Draw when the clock of an agent is set.

    It is never set in a world without clock skew.
    """
    drawn = random.Random(f"{network.seed}/clocks")
    per_s, number, at = network.world.clocks_set_per_h / HOUR_S, 0, 0.0
    while per_s and faults.skew:
        at += drawn.expovariate(per_s)
        if at >= until_s:
            return
        number += 1
        agent, step_s = drawn.choice(list(casts)), drawn.choice(STEPS_S) * drawn.choice((-1, 1))
        if drawn.random() < (1.0 if faults.stormy(at) else faults.calm):
            network.schedule.call_at(at, _set, network, f"c{number}", agent, casts[agent], step_s, judge)


def _set(
    network: WorldNetwork, name: str, agent: str, actor: AgentActor, step_s: float, judge: FleetJudge
) -> None:
    if network.fault_plan.happens(name, CLOCK_SET):
        network.watcher.note(network.schedule.now, f"the clock of {agent} is set by {step_s:+g} s  [{name}]")
        network.watcher.record(f"{name} {agent}".encode())
        actor.set_ns += round(step_s * 1e9)
        judge.clock_was_set(agent)
