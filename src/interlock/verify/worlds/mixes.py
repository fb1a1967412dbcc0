"""What goes wrong, in mixes that one can read: how often, for how long, and whether in storms."""

from __future__ import annotations

from interlock.errors import InvalidArguments
from interlock.suggestions import nearest
from interlock.verify.worlds.plan import Faults

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
        doc="The store is away, fails over, and its answers get lost: was it done, or not?",
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
        doc="The store fails over to a replica that has not heard the latest.",
        request_lost=0.05,
        reply_lost=0.1,
        failovers=4.0,
        lossy_s=20.0,
        kills=1.0,
        calm=0.4,
    ),
    Faults(
        name="flapping",
        doc="The store fails over again and again, to replicas that have not heard the latest seconds.",
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
    """The mix of that name."""
    if name in BY_NAME:
        return BY_NAME[name]
    guess = nearest(name, tuple(BY_NAME))
    raise InvalidArguments(
        f"There are no faults called {name}." + (f" Did you mean {guess}?" if guess else ""),
        allowed=tuple(BY_NAME),
        todo=f"Use one of: {', '.join(BY_NAME)}.",
        facts={"faults": name},
    )
