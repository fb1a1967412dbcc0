"""Clocks of a fleet: the offset of each agent's clock, and the common start instant that follows.

An exchange of four timestamps bounds the offset by an interval as wide as the round trip; the truth lies in
the intersection of all of them. Each agent is told the start by its own clock, so only the uncertainty of
an offset is limited. Durations are formatted for people here as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from interlock.errors import SkewTooLarge
from interlock.wire.workloads import (
    Spread,
)


def took(ms: float | None) -> str:
    """A duration with its unit; a dash where nothing was measured."""
    if ms is None:
        return "—"
    size = abs(ms)
    if 0 < size < 0.001:
        return f"{ms * 1e6:.0f} ns"
    if size < 999.5:
        return f"{ms:.3g} ms"
    return f"{ms / 1e3:.1f} s" if size < 99_950 else f"{ms / 1e3:,.0f} s"


def in_ms(ms: float | None) -> str:
    """A duration in a column of milliseconds; empty where nothing was measured."""
    if ms is None:
        return ""
    return f"{ms:.3g}" if abs(ms) < 999.5 else f"{ms:.0f}"


def some(names: tuple[str, ...], most: int = 3) -> str:
    """The first few of them, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


BEST = 5
"""How many of the quickest exchanges are believed: slow ones add nothing, and drift meanwhile."""


class ClockExchange(msgspec.Struct, frozen=True, kw_only=True):
    """One question and its answer; in nanoseconds, by the clock of whoever was there."""

    sent_ns: int
    received_ns: int
    """By the agent's clock, like the next."""
    answered_ns: int
    returned_ns: int

    @property
    def on_the_way_ns(self) -> int:
        """How long both ways took together."""
        return (self.returned_ns - self.sent_ns) - (self.answered_ns - self.received_ns)

    @property
    def least_ns(self) -> int:
        """The agent's clock is ahead by at least this: the answer was not under way for less than nothing."""
        return self.answered_ns - self.returned_ns

    @property
    def most_ns(self) -> int:
        """And by at most this, for the same reason on the way there."""
        return self.received_ns - self.sent_ns


class Offset(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's clock shows the controller's time plus `offset_ns`, give or take the uncertainty."""

    offset_ns: int
    uncertainty_ns: int
    exchanges: int = 1
    """How many have been believed."""
    steady: bool = True
    """False when the exchanges contradict each other: the clock was set, or runs at another pace."""


def offset_of(exchanges: Sequence[ClockExchange]) -> Offset:
    """What these exchanges say together. There is at least one."""
    best = sorted(exchanges, key=lambda each: each.on_the_way_ns)[:BEST]
    least = max(each.least_ns for each in best)
    most = min(each.most_ns for each in best)
    if least > most:
        # They cannot all be right. Whoever has to choose stays with all of them, and says so.
        least = min(each.least_ns for each in best)
        most = max(each.most_ns for each in best)
        return _between(least, most, len(best), steady=False)
    return _between(least, most, len(best), steady=True)


def _between(least_ns: int, most_ns: int, exchanges: int, *, steady: bool) -> Offset:
    middle = (least_ns + most_ns) // 2
    widest = max(most_ns - middle, middle - least_ns)
    return Offset(offset_ns=middle, uncertainty_ns=widest, exchanges=exchanges, steady=steady)


NS = 1_000_000_000
FARTHEST_S = 60.0
"""An agent refuses to wait for longer."""


class CommonStart(msgspec.Struct, frozen=True, kw_only=True):
    """When all begin."""

    at_ns: int
    """By the controller's clock."""
    told_ns: dict[str, int]
    """The same instant by each agent's own clock."""
    bound_ns: int
    """Two agents whose clocks were measured right begin at most so far apart, for all that is known."""


def choose_start(
    now_ns: int, offsets: Mapping[str, Offset], *, lead_s: float, skew_limit_s: float
) -> CommonStart:
    """The instant, so long from now; refused when it is not known well enough what that is elsewhere."""
    bound_ns = start_bound_ns(offsets)
    if bound_ns > skew_limit_s * NS:
        raise _too_large(offsets, bound_ns, skew_limit_s)
    at_ns = now_ns + round(min(lead_s, FARTHEST_S) * NS)
    told = {agent: at_ns + offset.offset_ns for agent, offset in offsets.items()}
    return CommonStart(at_ns=at_ns, told_ns=told, bound_ns=bound_ns)


def start_bound_ns(offsets: Mapping[str, Offset]) -> int:
    """How far apart any two of them may begin at worst: one as early as it may be, the other as late."""
    worst = sorted((offset.uncertainty_ns for offset in offsets.values()), reverse=True)
    return sum(worst[:2])


def spread_of(
    start: CommonStart, began_ns: Mapping[str, int], offsets: Mapping[str, Offset]
) -> Spread | None:
    """From when each says that it began, by its own clock; None when nobody did."""
    true_ns = {agent: at - offsets[agent].offset_ns for agent, at in began_ns.items() if agent in offsets}
    if not true_ns:
        return None
    known = {agent: offsets[agent] for agent in true_ns}
    return Spread(
        spread_ns=max(true_ns.values()) - min(true_ns.values()),
        uncertainty_ns=start_bound_ns(known),
        latest_ns=max(true_ns.values()) - start.at_ns,
        agents=len(true_ns),
    )


def began_ms(start: CommonStart | None, offset: Offset | None, started_at_ns: int) -> float | None:
    """Return how much after the common start an agent began, by true time; None when that is not known."""
    if start is None or offset is None or not started_at_ns:
        return None
    return (started_at_ns - offset.offset_ns - start.at_ns) / 1e6


def _too_large(offsets: Mapping[str, Offset], bound_ns: int, skew_limit_s: float) -> SkewTooLarge:
    worst = sorted(offsets.items(), key=lambda item: -item[1].uncertainty_ns)[:2]
    told = ", ".join(f"{agent} ±{took(offset.uncertainty_ns / 1e6)}" for agent, offset in worst)
    wild = [agent for agent, offset in offsets.items() if not offset.steady]
    why = f" The clock of {', '.join(wild)} was set meanwhile, or drifts." if wild else ""
    return SkewTooLarge(
        f"The agents might begin {took(bound_ns / 1e6)} apart, and {took(skew_limit_s * 1e3)} is the limit: "
        f"their clocks are known no better than {told}.{why}",
        todo="Allow more with skew-limit, or look at the network between here and the agents.",
        facts={
            "bound_ms": bound_ns / 1e6,
            "limit_ms": skew_limit_s * 1e3,
            "agents": [agent for agent, _ in worst],
        },
    )
