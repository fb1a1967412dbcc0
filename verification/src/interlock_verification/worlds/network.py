"""The nodes of a world, the network between them, and the trace of all writes.

A call of a process can be lost, late or repeated on the way there and back.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeAlias

import msgspec

from interlock.errors import StoreUnavailable
from interlock.store.records import StepLine
from interlock.systems.runtime import Host
from interlock_verification.worlds import faults
from interlock_verification.worlds.claims.episodes import PROCESS, UnexpectedError
from interlock_verification.worlds.claims.tables import CLAIMS_BY_FACT
from interlock_verification.worlds.faults import CallFault, FaultPlan
from interlock_verification.worlds.scheduler import Turn, WorldLoop, WorldSchedule
from interlock_verification.worlds.worlds import World

MOST_LINES = 4_000


class BrokenClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A broken claim."""

    claim: str
    """The property, in a sentence."""
    name: str
    """The name of the claim in its table."""
    description: str
    at_s: float
    about: str = ""
    """The job that it is about, if any."""


class ClaimWatcher:
    """Checks every fact by the tables of claims; the first broken claim halts the world."""

    def __init__(self, *, keeps_story: bool = False) -> None:
        self.keeps_story = keeps_story
        self.broken: BrokenClaim | None = None
        self.seen: Counter[str] = Counter()
        """Number of each named event: no claim may hold vacuously."""
        self._hash = hashlib.blake2b(digest_size=8)
        self._lines: deque[tuple[float, str, str]] = deque(maxlen=MOST_LINES)
        self.halt: Callable[[], None] = lambda: None
        self.time: Callable[[], float] = lambda: 0.0

    @property
    def trace(self) -> str:
        """A hash of all events."""
        return self._hash.hexdigest()

    def record(self, what: bytes) -> None:
        """Add an event to the hash; the same seed has to give the same hash."""
        self._hash.update(what)

    def saw(self, name: str) -> None:
        """Count an event that must occur."""
        self.seen[name] += 1

    def note(self, at_s: float, description: str, about: str = "") -> None:
        """Add a line to the story."""
        if self.keeps_story:
            self._lines.append((at_s, about, description))

    def check(self, fact: object, about: str = "", description: Callable[[], str] | None = None) -> None:
        """Check every claim about facts of this type.

        Only the first broken claim counts: later ones may be its consequences. It is reported in the words
        of the fact, or with a description.
        """
        for claim in CLAIMS_BY_FACT[type(fact)]:
            if self.broken is None and not claim.holds(fact):
                self.broken = BrokenClaim(
                    claim=claim.sentence,
                    name=claim.name,
                    description=str(fact) if description is None else description(),
                    at_s=self.time(),
                    about=about,
                )
                self.halt()

    def story(self, about: str = "") -> list[str]:
        """Return the story: general lines, and those about one job."""
        lines = [line for line in self._lines if not line[1] or not about or line[1] == about]
        return [f"{clock(at)}  {description}" for at, _, description in lines]


def clock(at_s: float) -> str:
    """Return a time of the world for people: days, then the time of day."""
    day, rest = divmod(at_s, 86_400.0)
    hour, rest = divmod(rest, 3_600.0)
    minute, second = divmod(rest, 60.0)
    return f"day {day + 1:.0f} {hour:02.0f}:{minute:02.0f}:{second:06.3f}"


def rows(lines: tuple[StepLine, ...]) -> str:
    """Return steps in a line: machine, entity, from and to."""
    return "; ".join(
        f"{' '.join(filter(None, (line.machine, line.entity)))} {line.source} → {line.target} by {line.event}"
        for line in lines
        if line.moves
    )


START = datetime(2026, 1, 1, 8, tzinfo=UTC)
STORE = "store"


class Actor(Protocol):
    """An actor of a node: an orchestrator, a worker, clients."""

    def live(self, process: ActorProcess) -> Coroutine[Any, Any, None]:
        """Run one incarnation, from its start to its end."""
        ...


class ActorProcess:
    """One incarnation of the actor of a node."""

    def __init__(
        self, network: WorldNetwork, name: str, incarnation: int, rate: float, off: timedelta
    ) -> None:
        self.network = network
        self.name = name
        self.incarnation = incarnation
        self.loop = WorldLoop(network.schedule, f"{name}#{incarnation}", rate)  # type: ignore[abstract]
        self.loop.owner = self
        self.random = random.Random(f"{network.seed}/{name}/{incarnation}")
        self.frozen_until = 0.0
        self.held_up_until = float("-inf")
        self.role: Any = None
        """Its interface for others, once it is ready."""
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
        """Return whether it was delayed since then, or is now."""
        return self.frozen or self.loop.lag_s > 0.0 or self.held_up_until >= at_s

    def lag(self, seconds: float) -> None:
        """Delay its timers by this much from now on."""
        self.loop.lag_s = seconds
        self.held_up_until = self.network.schedule.now

    @property
    def frozen(self) -> bool:
        """Whether it is stopped, as by SIGSTOP."""
        return self.frozen_until > self.network.schedule.now

    def local(self) -> datetime:
        """Return its wall clock, which is skewed."""
        return self.network.clock() + self._off

    def end(self) -> None:
        """End the process, in the middle of its work."""
        if self.alive:
            self.loop.kill()
            for act in self.at_end:
                act()

    def _name(self) -> str:
        return f"{self.random.getrandbits(64):016x}"

    def _secret(self) -> bytes:
        return self.random.randbytes(32)


class ActorNode:
    """A node: it runs an actor, and restarts it whenever its process has ended."""

    def __init__(self, network: WorldNetwork, name: str, actor: Actor, skew: float) -> None:
        self.network = network
        self.name = name
        self.actor = actor
        self.process: ActorProcess | None = None
        drawn = random.Random(f"{network.seed}/{name}")
        self._rate = 1.0 + skew * (2.0 * drawn.random() - 1.0)
        self._off = timedelta(hours=24.0 * (drawn.random() - 0.5)) if skew else timedelta()
        self._incarnations = 0

    def start(self) -> None:
        """Start a process; do nothing while there is one."""
        if self.process is not None and self.process.alive:
            return
        self._incarnations += 1
        process = self.process = ActorProcess(
            self.network, self.name, self._incarnations, self._rate, self._off
        )
        self.network.watcher.note(self.network.schedule.now, f"{process.loop.name} starts")
        life = process.loop.create_task(self.actor.live(process), name=self.name)
        life.add_done_callback(lambda done: self._ended(process, done))

    def kill(self, down_s: float) -> bool:
        """Kill a process, if any, and restart it later; return whether it lived."""
        if self.process is None or not self.process.alive:
            return False
        self.process.end()
        self.network.schedule.call_in(down_s, self.start)
        return True

    def _ended(self, process: ActorProcess, life: asyncio.Task[Any]) -> None:
        """Handle the end of a process: a shutdown, or a crash."""
        error = None if life.cancelled() else life.exception()
        if error is not None:
            self.network.watcher.check(UnexpectedError(PROCESS, f"{process.loop.name}: {error!r}"))
        process.end()
        self.network.schedule.call_in(1.0, self.start)


class WorldNetwork:
    """The nodes, the connections between them, and the virtual time that they share."""

    def __init__(self, world: World, seed: int, fault_plan: FaultPlan, watcher: ClaimWatcher) -> None:
        self.world = world
        self.seed = seed
        self.fault_plan = fault_plan
        self.watcher = watcher
        self.schedule = WorldSchedule()
        self.random = random.Random(f"{seed}/stage")  # names of streams never change: seeds are kept
        self.nodes: dict[str, ActorNode] = {}
        self.away_until = 0.0
        """Time until which the store does not answer."""
        self._apart: dict[tuple[str, str], float] = {}

    def clock(self) -> datetime:
        """Return the store's clock."""
        return START + timedelta(seconds=self.schedule.now)

    def reachable(self, one: str, other: str) -> bool:
        """Return whether a message between these two arrives."""
        now = self.schedule.now
        if STORE in (one, other) and self.away_until > now:
            return False
        return self._apart.get((one, other) if one < other else (other, one), 0.0) <= now

    def part(self, one: str, other: str, for_s: float) -> None:
        """Partition these two for a while."""
        pair = (one, other) if one < other else (other, one)
        self._apart[pair] = max(self._apart.get(pair, 0.0), self.schedule.now + for_s)

    def heal(self) -> None:
        """Remove all faults, and start all processes."""
        self._apart.clear()
        self.away_until = 0.0
        for node in self.nodes.values():
            if node.process is not None:
                node.process.lag(0.0)
                if node.process.frozen:
                    self.thaw(node.process)
            node.start()

    def freeze(self, process: ActorProcess, for_s: float) -> None:
        """Stop a process, as by SIGSTOP, for a while."""
        process.frozen_until = self.schedule.now + for_s
        process.loop.freeze()
        self.schedule.call_in(for_s, self.thaw, process)

    def thaw(self, process: ActorProcess) -> None:
        """Resume a frozen process."""
        process.frozen_until, process.held_up_until = 0.0, self.schedule.now
        process.loop.thaw()

    def trip_s(self) -> float:
        """Return the latency of a message."""
        return 0.0002 + 0.003 * self.random.random()


ReceiveAnswer: TypeAlias = Callable[[object, BaseException | None], None]
"""Called once with an answer or an error."""
Arrive: TypeAlias = Callable[[ReceiveAnswer], None]
"""Does the requested work at the other side, at once or later."""


class NetworkCall:
    """A call under way. A `certain` one is answered whenever it arrives; others may stay silent.

    On a connection that `resends`, most lost messages are only late.
    """

    __slots__ = (
        "_answer",
        "_arrive",
        "_caller",
        "_fault",
        "_network",
        "_sent_at",
        "_timeout_s",
        "_timer",
        "_to",
    )

    def __init__(
        self,
        caller: ActorProcess,
        to: str,
        arrive: Arrive,
        timeout_s: float,
        *,
        repeats: bool = False,
        certain: bool = False,
        resends: bool = False,
    ) -> None:
        network = self._network = caller.network
        self._caller = caller
        self._to = to
        self._arrive = arrive
        self._timeout_s = timeout_s
        self._timer: Turn | None = None
        self._answer: asyncio.Future[Any] = caller.loop.create_future()
        self._sent_at = now = network.schedule.now
        fault = network.fault_plan.fault_of_call(caller.name, to, now, repeats=repeats)
        self._fault = faults.resent(fault) if resends else fault
        if self._fault is None:
            if not certain:
                self._give_up_in_time()
            network.schedule.call_in(network.trip_s(), self._arrives)
        else:
            self._give_up_in_time()
            self._send(self._fault)

    def answer(self) -> Awaitable[Any]:
        """Return the answer."""
        return self._answer

    def _send(self, fault: CallFault) -> None:
        schedule = self._network.schedule
        if self._network.watcher.keeps_story:
            self._network.watcher.note(schedule.now, f"{self._caller.name} → {self._to}: {fault.what}")
        match fault.what:
            case faults.REQUEST_LOST:
                schedule.call_in(fault.seconds, self._fail, f"The connection to {self._to} broke.")
            case faults.LATE:
                schedule.call_in(fault.seconds, self._arrives)
            case faults.TWICE:
                schedule.call_in(self._network.trip_s(), self._arrives)
                schedule.call_in(fault.seconds, self._arrives_again)
            case _:
                schedule.call_in(self._network.trip_s(), self._arrives)

    def _arrives(self) -> None:
        if self._network.reachable(self._caller.name, self._to):
            self._arrive(self._done)
        elif self._network.random.random() < 0.5:
            self._fail(f"{self._to} cannot be reached.")
        else:
            self._give_up_in_time()

    def _arrives_again(self) -> None:
        if self._network.reachable(self._caller.name, self._to):
            self._arrive(lambda _answer, _error: None)

    def _done(self, value: object, error: BaseException | None) -> None:
        network, fault = self._network, self._fault
        if fault is not None and fault.what is faults.REPLY_LOST:
            network.schedule.call_in(fault.seconds, self._fail, f"The connection to {self._to} broke.")
        elif network.reachable(self._caller.name, self._to):
            network.schedule.call_in(network.trip_s(), self._settle, value, error)
        else:
            self._give_up_in_time()

    def _give_up_in_time(self) -> None:
        """Start the timeout."""
        if self._timer is None:
            at = self._sent_at + self._timeout_s
            self._timer = self._network.schedule.call_at(at, self._fail, f"No answer of {self._to} in time.")

    def _settle(self, value: object, error: BaseException | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._answer.done():
            return
        if error is None:
            self._answer.set_result(value)
        else:
            self._answer.set_exception(error)

    def _fail(self, description: str) -> None:
        self._settle(
            None, StoreUnavailable(f"{description} Whether it was done is unknown.", todo="Ask again.")
        )
