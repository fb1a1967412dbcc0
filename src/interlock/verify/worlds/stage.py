"""Where a world plays: its time, its processes, the network between them, and who watches.

A process has an event loop, clocks and chance of its own, and is gone without a word when it is killed;
whoever is cast in its place is then started again as another incarnation.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from interlock.systems.runtime import Host
from interlock.verify.worlds.fates import Fates
from interlock.verify.worlds.plan import World
from interlock.verify.worlds.scheduler import Loop, Schedule
from interlock.verify.worlds.watcher import Watcher

START = datetime(2026, 1, 1, 8, tzinfo=UTC)
STORE = "store"


class Cast(Protocol):
    """Who lives in a place: an orchestrator, a worker, people; later a supervisor, a fleet."""

    def live(self, process: Process) -> Coroutine[Any, Any, None]:
        """The life of one incarnation, from its start to its end."""
        ...


class Process:
    """One incarnation of whoever lives in a place."""

    def __init__(self, stage: Stage, name: str, incarnation: int, rate: float, off: timedelta) -> None:
        self.stage = stage
        self.name = name
        self.incarnation = incarnation
        self.loop = Loop(stage.schedule, f"{name}#{incarnation}", rate)  # type: ignore[abstract]
        self.loop.owner = self
        self.random = random.Random(f"{stage.seed}/{name}/{incarnation}")
        self.frozen_until = 0.0
        self.held_up_until = float("-inf")
        self.role: Any = None
        """What others may ask for, once it is there."""
        self.at_end: list[Callable[[], None]] = []
        self._off = off
        self.host = Host(
            monotonic=self.loop.time,
            wall=self.loop.time,
            ids=self._name,
            seeds=self._secret,
            below=self.random.randrange,
        )

    @property
    def alive(self) -> bool:
        """Whether it was not killed and has not ended."""
        return not self.loop.dead

    def was_held_up_since(self, at_s: float) -> bool:
        """Whether it has lost time since then, or does so now."""
        return self.frozen or self.loop.lag_s > 0.0 or self.held_up_until >= at_s

    def lag(self, seconds: float) -> None:
        """From now on its timers are so late."""
        self.loop.lag_s = seconds
        self.held_up_until = self.stage.schedule.now

    @property
    def frozen(self) -> bool:
        """Whether it is stopped, as by SIGSTOP."""
        return self.frozen_until > self.stage.schedule.now

    def local(self) -> datetime:
        """Its wall clock, which nobody has set right."""
        return self.stage.clock() + self._off

    def end(self) -> None:
        """It is gone, in the middle of whatever it did."""
        if self.alive:
            self.loop.kill()
            for act in self.at_end:
                act()

    def _name(self) -> str:
        return f"{self.random.getrandbits(64):016x}"

    def _secret(self) -> bytes:
        return self.random.randbytes(32)


class Place:
    """Where somebody lives, again and again."""

    def __init__(self, stage: Stage, name: str, cast: Cast, skew: float) -> None:
        self.stage = stage
        self.name = name
        self.cast = cast
        self.process: Process | None = None
        drawn = random.Random(f"{stage.seed}/{name}")
        self._rate = 1.0 + skew * (2.0 * drawn.random() - 1.0)
        self._off = timedelta(hours=24.0 * (drawn.random() - 0.5)) if skew else timedelta()
        self._incarnations = 0

    def start(self) -> None:
        """Begin a life; does nothing while there is one."""
        if self.process is not None and self.process.alive:
            return
        self._incarnations += 1
        process = self.process = Process(self.stage, self.name, self._incarnations, self._rate, self._off)
        self.stage.watcher.tell(self.stage.schedule.now, f"{process.loop.name} starts")
        life = process.loop.create_task(self.cast.live(process), name=self.name)
        life.add_done_callback(lambda done: self._ended(process, done))

    def kill(self, down_s: float) -> bool:
        """End it like a power cut; it starts again later. False when nobody was there."""
        if self.process is None or not self.process.alive:
            return False
        self.process.end()
        self.stage.schedule.call_in(down_s, self.start)
        return True

    def _ended(self, process: Process, life: asyncio.Task[Any]) -> None:
        """It went by itself: as it was asked to, or because it has crashed."""
        error = None if life.cancelled() else life.exception()
        if error is not None:
            self.stage.watcher.broke("no process crashes", f"{process.loop.name}: {error!r}")
        process.end()
        self.stage.schedule.call_in(1.0, self.start)


class Stage:
    """Everything that the processes of a world share."""

    def __init__(self, world: World, seed: int, fates: Fates, watcher: Watcher) -> None:
        self.world = world
        self.seed = seed
        self.fates = fates
        self.watcher = watcher
        self.schedule = Schedule()
        self.random = random.Random(f"{seed}/stage")
        self.places: dict[str, Place] = {}
        self.away_until = 0.0
        """Until when the store does not answer."""
        self._apart: dict[tuple[str, str], float] = {}

    def clock(self) -> datetime:
        """The store's clock."""
        return START + timedelta(seconds=self.schedule.now)

    def reachable(self, one: str, other: str) -> bool:
        """Whether a message between these two arrives."""
        now = self.schedule.now
        if STORE in (one, other) and self.away_until > now:
            return False
        return self._apart.get((one, other) if one < other else (other, one), 0.0) <= now

    def part(self, one: str, other: str, for_s: float) -> None:
        """Nothing arrives between these two for a while."""
        pair = (one, other) if one < other else (other, one)
        self._apart[pair] = max(self._apart.get(pair, 0.0), self.schedule.now + for_s)

    def heal(self) -> None:
        """Everything can be reached, and everybody is up."""
        self._apart.clear()
        self.away_until = 0.0
        for place in self.places.values():
            if place.process is not None:
                place.process.lag(0.0)
                if place.process.frozen:
                    self.thaw(place.process)
            place.start()

    def freeze(self, process: Process, for_s: float) -> None:
        """Stop a process, as by SIGSTOP, for a while."""
        process.frozen_until = self.schedule.now + for_s
        process.loop.freeze()
        self.schedule.call_in(for_s, self.thaw, process)

    def thaw(self, process: Process) -> None:
        """Let it go on."""
        process.frozen_until, process.held_up_until = 0.0, self.schedule.now
        process.loop.thaw()

    def trip_s(self) -> float:
        """How long a message takes."""
        return 0.0002 + 0.003 * self.random.random()
