"""Fleets of real agents, driven as a job drives them, with everything written down that is said."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.agent.conftest import PATIENT
from tests.waiting import PATIENCE_S, until, until_so

from interlock.systems.fleet.agent_client import NOTHING_NEEDED, Access, AgentConnection, over_grpc
from interlock.systems.fleet.driver import Drive, Driver, DriverPorts
from interlock.systems.fleet.member import AgentClient, ReferenceClock
from interlock.systems.fleet.outcome import (
    WorkloadProgress,
)
from interlock.systems.fleet.spec import (
    checked,
)
from interlock.testing.agent_process import AgentProcess
from interlock.wire.workloads import Happened, WorkloadFact, WorkloadResult, WorkloadSpec

OPTIONS = ("--sample-every", "0.2", "--drain", "30")
LOADS = Path(__file__).with_name("loads")
FREE = 50
"""So many operations a gated workload does before it waits for its gate."""
NO_OTHERS: Mapping[str, Access] = {}
FENCES = itertools.count(1)
"""No agent takes a workload of the same name twice."""


@contextmanager
def fleet(
    folder: Path, environments: Sequence[Mapping[str, str]], *options: str
) -> Iterator[list[AgentProcess]]:
    """One agent for each environment; they are started side by side."""
    agents = [
        AgentProcess(folder / str(number), *OPTIONS, *options, durations=PATIENT, env=env)
        for number, env in enumerate(environments)
    ]
    try:
        with ThreadPoolExecutor(len(agents)) as pool:
            list(pool.map(AgentProcess.start, agents))
        yield agents
    finally:
        for agent in agents:
            agent.kill()


def asked(agents: Sequence[AgentProcess], **more: Any) -> WorkloadSpec:
    """A quick workload on these agents; whatever should not end it has a minute, or ten."""
    options: dict[str, Any] = {
        "kind": "sleep",
        "spec": {"operation_s": 0.002},
        # By number, not by time: a busy machine does not get as much done in a second as it should.
        "operations": 100,
        "duration_s": 600.0,
        "rate": 500.0,
        "lead_s": 0.5,
        "skew_limit_s": 60.0,
        "ready_within_s": 60.0,
        **more,
    }
    return checked(WorkloadSpec(agents=tuple(agent.address for agent in agents), **options))


def gated(agents: Sequence[AgentProcess], gate: Path, **more: Any) -> WorkloadSpec:
    """One that does some operations, and the others of its hundred when there is a file."""
    arguments = {"gate": str(gate), "free": FREE}
    target = {"target": "gated:work", "arguments": arguments, "path": [str(LOADS)]}
    return asked(agents, kind="python", spec=target, **more)


class Driven:
    """One drive, and all that was heard of it."""

    def __init__(
        self,
        spec: WorkloadSpec,
        *,
        access: Access = NOTHING_NEEDED,
        others: Mapping[str, Access] = NO_OTHERS,
    ) -> None:
        self.facts: dict[str, list[Happened]] = {}
        self.lines: list[str] = []
        self.lives: list[WorkloadProgress] = []
        self._news = asyncio.Event()
        hands = DriverPorts(
            store_facts=self._tell, news=self._show, log=lambda text, _: self.lines.append(text)
        )
        driver = Driver(job_id="j_0123456789ab", fence=next(FENCES), controller="a test")

        def line(agent: str, reference: ReferenceClock) -> AgentClient:
            return over_grpc(others.get(agent, access))(agent, reference)

        self.drive = Drive(spec, driver, hands, line)
        self.running = asyncio.create_task(self.drive.run())
        self.running.add_done_callback(lambda _: self._news.set())

    async def until(self, holds: Callable[[WorkloadProgress], object]) -> WorkloadProgress:
        """Wait until what is shown is as it should be."""
        async with asyncio.timeout(PATIENCE_S):
            while not (self.lives and holds(self.lives[-1])):
                if self.running.done():
                    raise AssertionError(f"It ended: {self.running.result().sentence}")
                await self._news.wait()
                self._news.clear()
        return self.lives[-1]

    async def result(self) -> WorkloadResult:
        """What comes of it."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.running

    async def _tell(self, facts: Sequence[WorkloadFact]) -> None:
        for fact in facts:
            self.facts.setdefault(fact.agent, []).append(fact.happened)

    def _show(self, live: WorkloadProgress) -> None:
        self.lives.append(live)
        self._news.set()


async def states(agents: Sequence[AgentProcess], wait_s: float = 0.0) -> list[str]:
    """Where each of them stands."""
    found = []
    for agent in agents:
        line = AgentConnection(agent.address, ReferenceClock())
        found.append((await line.status(within_s=PATIENCE_S, wait_idle_s=wait_s)).state)
        await line.close()
    return found


def moves(agent: AgentProcess) -> list[tuple[str, str, str]]:
    """What its log says of every step, by what it was taken."""
    whole = agent.log.read_text().rpartition("\n")[0]
    lines = [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
    return [(line["from_state"], line["to_state"], line["event"]) for line in lines if "from_state" in line]


def all_are(agents: Sequence[AgentProcess], state: str) -> bool:
    """Return whether the last step of each was to that state."""
    return all(moves(agent)[-1:] and moves(agent)[-1][1] == state for agent in agents)


def until_all_are(agents: Sequence[AgentProcess], state: str) -> None:
    """Wait until the last step of each was to that state."""
    until_so(lambda: all_are(agents, state), f"all agents are {state}", story=lambda: steps_of(agents))


async def until_all_have_become(agents: Sequence[AgentProcess], state: str) -> None:
    """The same while an event loop runs."""
    await until(lambda: all_are(agents, state), f"all agents are {state}", story=lambda: steps_of(agents))


def steps_of(agents: Sequence[AgentProcess]) -> str:
    """The last steps of each agent, for tests that fail."""
    return "\n".join(f"{agent.address}: {moves(agent)[-4:]}" for agent in agents)
