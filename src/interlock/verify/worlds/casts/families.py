"""The processes of workloads on an agent of a world: they begin, count, end, fail and are deaf, by dice.

They run on the machine of their agent: when that stands still so do they, and with its end they end, as
under the warden of production. Whatever they do is told to the judge, which knows the true time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from interlock.agent.clocks import Clocks
from interlock.agent.family import Hear
from interlock.agent.port import Load, Workload
from interlock.agent.words import Order, Sample, Started
from interlock.verify.worlds.fleets import Life
from interlock.verify.worlds.judge_fleet import FleetJudge

UP_S = (0.05, 0.8)
"""How long a process takes until it can begin."""
SLOW_S = (4.0, 20.0)
STOPS_S = (0.0, 2.0)
"""How long one that heeds takes to stop."""
SURVIVES_S = 10.0
LATENCIES_NS = (900, 1_000, 1_100, 2_000)


class Lot(msgspec.Struct, frozen=True):
    """What a workload of a world is given: how it ends on each agent."""

    ends: dict[str, str]


class DrawnLoad(Workload[Lot]):
    """The kind of workloads that there is in a world; an agent looks at its spec, and starts none of it."""

    kind = "drawn"
    spec_type = Lot

    async def run(self, load: Load) -> None:
        """It runs in no process."""


class Household:
    """What a family needs of the machine that it lives on."""

    def __init__(self, agent: str, seed: int, clocks: Clocks, judge: FleetJudge) -> None:
        self.agent = agent
        self.seed = seed
        self.clocks = clocks
        self.judge = judge


class DrawnFamily:
    """The process of a workload; see `agent.family.Family`."""

    def __init__(self, home: Household, order: Order, hear: Hear, life: Life) -> None:
        self._home = home
        self._order = order
        self._hear = hear
        self._life = life
        self._drawn = random.Random(f"{home.seed}/{life.workload_id}/family")
        self._asked = asyncio.Event()
        self._over = asyncio.Event()
        self._error: str | None = None
        self._up = False
        self._operations_per_s = 1 + self._drawn.randrange(40)
        life.survives_s = SURVIVES_S * self._drawn.random() if life.end == "undead" else 0.0
        home.judge.spawned(life)
        self._living = asyncio.create_task(self._live(), name=f"process of {life.workload_id}")

    async def ended(self) -> str | None:
        """Why it failed, or None; whoever stops to wait for that lets it go, and its warden ends it."""
        try:
            await self._over.wait()
        except asyncio.CancelledError:
            self._die("nobody waits for it any more")
            raise
        return self._error

    def ask(self) -> None:
        """Ask it to stop, which some do not hear; what is not up yet is killed, as in production."""
        if not self._life.process.alive:
            return  # whoever asks is dead, and so is this
        if not self._up:
            self.kill()
        elif self._life.end not in ("deaf", "stubborn", "undead"):
            self._asked.set()

    def terminate(self) -> None:
        """Do not ask any more; some do not mind."""
        if self._life.end not in ("stubborn", "undead"):
            self._die("it was terminated")

    def kill(self) -> None:
        """Nobody survives that for long."""
        if self._over.is_set() or not self._life.process.alive:
            return
        self._home.judge.killed(self._life)
        if self._life.survives_s:
            asyncio.get_running_loop().call_later(self._life.survives_s, self._die, "it was killed")
        else:
            self._die("it was killed")

    def survivors(self) -> int:
        """How many processes of it there are."""
        return 0 if self._over.is_set() else 1

    # Its life

    async def _live(self) -> None:
        """Get up, wait for the start, work, and end as the dice say."""
        await asyncio.sleep(self._life.up_ns / 1e9)
        self._up = True
        if self._life.end == "stillborn":
            self._end("it could not prepare")
            return
        if not await self._asked_within((self._order.start_at_ns - self._home.clocks.monotonic_ns()) / 1e9):
            started_ns = self._home.clocks.monotonic_ns()
            self._home.judge.began(self._life, started_ns)
            late_ns = started_ns - self._order.start_at_ns
            self._hear(Started(at_unix_ns=self._home.clocks.wall_ns(), late_ns=late_ns))
            await self._work(started_ns)
        if self._asked.is_set():
            await asyncio.sleep(self._drawn.uniform(*STOPS_S))
        self._end("this load is broken" if self._life.end == "fails" else None)

    async def _work(self, started_ns: int) -> None:
        """Operations, told of now and then, for as long as it should; or longer, or not so long."""
        share = {"early": self._drawn.random(), "fails": self._drawn.random(), "hangs": 1e6}
        lasts_s = self._order.duration_s * share.get(self._life.end, 1.0)
        done_s, asked = 0.0, False
        while done_s < lasts_s and not asked:
            next_s = min(lasts_s, done_s + self._order.sample_every_s)
            ahead_s = next_s - (self._home.clocks.monotonic_ns() - started_ns) / 1e9
            asked = await self._asked_within(ahead_s)
            elapsed_ns = self._home.clocks.monotonic_ns() - started_ns
            self._tell(round((elapsed_ns / 1e9 - done_s) * self._operations_per_s), elapsed_ns)
            done_s = max(next_s, elapsed_ns / 1e9)

    def _tell(self, operations: int, elapsed_ns: int) -> None:
        if self._life.end == "mute":
            return
        self._life.operations += operations
        counts = {self._drawn.choice(LATENCIES_NS): operations} if operations else {}
        self._hear(Sample(elapsed_ns=elapsed_ns, operations=operations, counts=counts))

    async def _asked_within(self, seconds: float) -> bool:
        """Whether somebody wants it to stop before so long."""
        if seconds > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._asked.wait()
        return self._asked.is_set()

    def _die(self, error: str) -> None:
        if not self._over.is_set():
            self._living.cancel()
            self._end(error)

    def _end(self, error: str | None) -> None:
        self._error = error
        self._over.set()
        self._home.judge.ended(self._life, well=error is None and not self._asked.is_set())


def end_of(order: Order, agent: str) -> str:
    """How a workload ends on this agent."""
    ends: Mapping[str, str] = msgspec.json.decode(order.spec, type=Lot).ends
    return ends.get(agent, "ok")


def up_of(life_id: str, end: str, seed: int) -> float:
    """How long the process takes until it can begin."""
    return random.Random(f"{seed}/{life_id}/up").uniform(*(SLOW_S if end == "slow" else UP_S))
