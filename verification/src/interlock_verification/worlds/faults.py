"""Mixes of faults, and the times of faults: drawn from the seed, each with a name.

A fault can be left out by its name; this is how a failing episode is shrunk.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Sequence

import msgspec

from interlock.errors import InvalidArguments
from interlock.text import nearest
from interlock_verification.worlds.worlds import HOUR_S, Span


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """A mix of faults: probabilities are per call, rates per hour, both in a storm; `calm` is their share
    between two storms.
    """

    name: str
    doc: str
    # Faults of one call, to the store or an orchestrator
    request_lost: float = 0.0
    reply_lost: float = 0.0
    late: float = 0.0
    late_s: Span = (0.5, 15.0)
    twice: float = 0.0
    """A message arrives again, after a while, as by a proxy that repeats it."""
    twice_s: Span = (0.1, 300.0)
    # Faults of a process, of the network and of the store
    kills: float = 0.0
    down_s: Span = (1.0, 300.0)
    deploys: float = 0.0
    """A worker is shut down, and restarted under its name."""
    freezes: float = 0.0
    frozen_s: Span = (5.0, 600.0)
    partitions: float = 0.0
    apart_s: Span = (5.0, 600.0)
    outages: float = 0.0
    away_s: Span = (1.0, 120.0)
    failovers: float = 0.0
    """The store is unavailable for a moment and returns in another epoch."""
    lossy_s: float = 0.0
    """Maximum seconds of writes that a fail-over loses."""
    lags: float = 0.0
    """Timers of a process, and so its sweeps, are late for a while."""
    lag_s: Span = (1.0, 60.0)
    skew: float = 0.0
    """Maximum relative drift of a clock; wall clocks are also off by hours."""
    # Times of storms
    storm_every_h: float = 8.0
    storm_lasts_h: float = 2.0
    calm: float = 0.1
    quiet_at_end_s: float = 600.0

    def stormy(self, at_s: float) -> bool:
        """Return whether there is a storm at this time."""
        return (at_s / HOUR_S) % self.storm_every_h < self.storm_lasts_h


MIXES = (
    Faults(name="none", doc="Nothing goes wrong.", calm=0.0, storm_lasts_h=0.0),
    Faults(
        name="network",
        doc="Messages are lost, late, doubled and overtaken; hosts cannot reach each other.",
        request_lost=0.05,
        reply_lost=0.05,
        late=0.1,
        twice=0.15,
        partitions=4.0,
        skew=0.001,
        calm=0.4,
    ),
    Faults(
        name="deaths",
        doc="Processes are killed, frozen past their leases, replaced by deploys, late with their timers.",
        kills=6.0,
        deploys=4.0,
        freezes=4.0,
        frozen_s=(5.0, 1_800.0),
        lags=2.0,
        skew=0.001,
        calm=0.4,
    ),
    Faults(
        name="store",
        doc="The store is unavailable, fails over, and its answers get lost.",
        request_lost=0.05,
        reply_lost=0.1,
        late=0.05,
        late_s=(1.0, 30.0),
        outages=3.0,
        failovers=2.0,
        calm=0.4,
    ),
    Faults(
        name="lossy",
        doc="The store fails over to a replica without the latest writes.",
        request_lost=0.05,
        reply_lost=0.1,
        failovers=4.0,
        lossy_s=20.0,
        kills=1.0,
        calm=0.4,
    ),
    Faults(
        name="flapping",
        doc="The store fails over repeatedly, to replicas without the writes of the latest seconds.",
        request_lost=0.05,
        reply_lost=0.1,
        failovers=40.0,
        lossy_s=5.0,
        kills=1.0,
        calm=0.4,
    ),
    Faults(
        name="everything",
        doc="All of it at once, but for lost writes.",
        request_lost=0.05,
        reply_lost=0.05,
        late=0.05,
        twice=0.1,
        kills=3.0,
        deploys=2.0,
        freezes=2.0,
        frozen_s=(5.0, 1_800.0),
        partitions=2.0,
        outages=1.0,
        failovers=0.5,
        lags=1.0,
        skew=0.001,
        calm=0.5,
    ),
)

BY_NAME = {mix.name: mix for mix in MIXES}


def faults_named(name: str) -> Faults:
    """Return the mix of that name."""
    if name in BY_NAME:
        return BY_NAME[name]
    guess = nearest(name, tuple(BY_NAME))
    raise InvalidArguments(
        f"There are no faults called {name}." + (f" Did you mean {guess}?" if guess else ""),
        allowed=tuple(BY_NAME),
        todo=f"Use one of: {', '.join(BY_NAME)}.",
        facts={"faults": name},
    )


REQUEST_LOST, REPLY_LOST, LATE, TWICE = "request lost", "reply lost", "late", "twice"
LOST_BELOW_S, FELT_ABOVE_S, RESENT = 0.25, 14.0, 0.05
"""Resending on a connection: a lost message is resent after a fraction of the timeout; a loss noticed very
early breaks the connection, and a very late message stays late.
"""
_TIMED = ("kill", "deploy", "freeze", "partition", "outage", "failover", "lag")


class CallFault(msgspec.Struct, frozen=True):
    """The fault of one call."""

    what: str
    seconds: float


def resent(fault: CallFault | None) -> CallFault | None:
    """Return the fault on a connection that resends lost messages.

    Most of these are only late.
    """
    if fault is None or fault.what is TWICE:
        return fault
    felt = fault.seconds > FELT_ABOVE_S if fault.what is LATE else fault.seconds < LOST_BELOW_S
    return fault if felt else CallFault(LATE, fault.seconds * RESENT)


class TimedFault(msgspec.Struct, frozen=True):
    """A fault at one time."""

    name: str
    at_s: float
    what: str
    who: str
    whom: str
    for_s: float
    amount: float
    """Delay of timers, or seconds of lost writes."""


class FaultPlan:
    """All faults of one episode; `only` are those that may occur, None for all."""

    def __init__(self, seed: int, faults: Faults, only: Collection[str] | None = None) -> None:
        self._seed = seed
        self._faults = faults
        self._only = None if only is None else frozenset(only)
        self._streams: dict[str, random.Random] = {}
        self._calls: Counter[str] = Counter()
        self._chance = faults.request_lost + faults.reply_lost + faults.late + faults.twice
        self.over = False
        """Whether the faults have ended."""
        self.counts: Counter[str] = Counter()
        self.happened: list[str] = []

    def fault_of_call(self, caller: str, to: str, now: float, *, repeats: bool = False) -> CallFault | None:
        """Return the fault of the next call between two nodes, if any."""
        faults = self._faults
        if self.over or not self._chance:
            return None
        stream = f"{caller}-{to}"
        drawn = self._streams.get(stream)
        if drawn is None:
            drawn = self._streams[stream] = random.Random(f"{self._seed}/{stream}")
        self._calls[stream] += 1
        luck, length = drawn.random(), drawn.random()
        if luck >= self._chance or (not faults.stormy(now) and luck >= self._chance * faults.calm):
            return None
        share = luck if faults.stormy(now) else luck / faults.calm
        fault = self._fault(share, length, repeats=repeats)
        return fault if fault and self.happens(f"{stream}.{self._calls[stream]}", fault.what) else None

    def _fault(self, share: float, length: float, *, repeats: bool) -> CallFault | None:
        faults = self._faults
        ranges: tuple[tuple[str, float, Span], ...] = (
            (REQUEST_LOST, faults.request_lost, (0.0, 5.0)),
            (REPLY_LOST, faults.reply_lost, (0.0, 5.0)),
            (LATE, faults.late, faults.late_s),
            (TWICE, faults.twice, faults.twice_s),
        )
        for what, chance, (least, most) in ranges:
            if share < chance:
                return (
                    None
                    if what is TWICE and not repeats
                    else CallFault(what, least + length * (most - least))
                )
            share -= chance
        return None

    def happens(self, name: str, what: str) -> bool:
        """Return whether this fault may occur, and count it."""
        if self._only is not None and name not in self._only:
            return False
        self.counts[what] += 1
        self.happened.append(name)
        return True

    def timed_faults(
        self, until_s: float, servers: Sequence[str], workers: Sequence[str]
    ) -> list[TimedFault]:
        """Return the faults of processes, network and store, by time."""
        faults, drawn = self._faults, random.Random(f"{self._seed}/blows")
        rates = [
            faults.kills,
            faults.deploys,
            faults.freezes,
            faults.partitions,
            faults.outages,
            faults.failovers,
            faults.lags,
        ]
        per_s = sum(rates) / HOUR_S
        timed_faults: list[TimedFault] = []
        at = 0.0
        while per_s:
            at += drawn.expovariate(per_s)
            if at >= until_s:
                break
            (what,) = drawn.choices(_TIMED, rates)
            fault = self._timed_fault(drawn, f"t{len(timed_faults)}", at, what, servers, workers)
            if drawn.random() < (1.0 if faults.stormy(at) else faults.calm):
                timed_faults.append(fault)
        return timed_faults

    def _timed_fault(
        self,
        drawn: random.Random,
        name: str,
        at: float,
        what: str,
        servers: Sequence[str],
        workers: Sequence[str],
    ) -> TimedFault:
        faults = self._faults
        spans: dict[str, Span] = {
            "kill": faults.down_s,
            "deploy": (0.0, 5.0),
            "freeze": faults.frozen_s,
            "partition": faults.apart_s,
            "outage": faults.away_s,
            "failover": (1.5, 10.0),
            "lag": (10.0, 900.0),
        }
        who = drawn.choice([*workers] if what == "deploy" else [*servers, *workers])
        whom = drawn.choice([*(name for name in servers if name != who), "store"])
        amount = drawn.uniform(*faults.lag_s) if what == "lag" else drawn.random() * faults.lossy_s
        return TimedFault(name, at, what, who, whom, drawn.uniform(*spans[what]), amount)
