"""Clocks of a fleet: the offset of each agent's clock, and the common start instant.

An exchange of four timestamps bounds the offset by an interval as wide as the round trip; the true offset
lies in the intersection of all of them. Each agent gets the start by its own clock, so only the uncertainty
of an offset is limited. Durations are formatted for people here as well.

Why: decision 0234.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from interlock.errors import SkewTooLarge
from interlock.wire.workloads import (
    Spread,
)


def took(ms: float | None) -> str:
    """Return a duration with its unit; a dash if there is none."""
    if ms is None:
        return "—"
    size = abs(ms)
    if 0 < size < 0.001:
        return f"{ms * 1e6:.0f} ns"
    if size < 999.5:
        return f"{ms:.3g} ms"
    return f"{ms / 1e3:.1f} s" if size < 99_950 else f"{ms / 1e3:,.0f} s"


def in_ms(ms: float | None) -> str:
    """Return a duration in milliseconds for a column; empty if there is none."""
    if ms is None:
        return ""
    return f"{ms:.3g}" if abs(ms) < 999.5 else f"{ms:.0f}"


def some(names: tuple[str, ...], most: int = 3) -> str:
    """Return the first few names, and the number of the others."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


BEST = 5
"""Number of fastest exchanges to use: slow ones add nothing, and include drift."""


class ClockExchange(msgspec.Struct, frozen=True, kw_only=True):
    """One request and its answer; in nanoseconds, by the clock of each side."""

    sent_ns: int
    received_ns: int
    """By the agent's clock, like the next."""
    answered_ns: int
    returned_ns: int

    @property
    def on_the_way_ns(self) -> int:
        """Duration of both ways together."""
        return (self.returned_ns - self.sent_ns) - (self.answered_ns - self.received_ns)

    @property
    def least_ns(self) -> int:
        """Lower bound of the offset: the answer cannot have arrived before it was sent."""
        return self.answered_ns - self.returned_ns

    @property
    def most_ns(self) -> int:
        """Upper bound of the offset, for the same reason on the way there."""
        return self.received_ns - self.sent_ns


class Offset(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's clock shows the controller's time plus `offset_ns`, give or take the uncertainty."""

    offset_ns: int
    uncertainty_ns: int
    exchanges: int = 1
    """Number of exchanges used."""
    steady: bool = True
    """False if the exchanges contradict each other: the clock was set, or drifts."""


def offset_of(exchanges: Sequence[ClockExchange]) -> Offset:
    """Return the offset from these exchanges. There is at least one."""
    best = sorted(exchanges, key=lambda each: each.on_the_way_ns)[:BEST]
    least = max(each.least_ns for each in best)
    most = min(each.most_ns for each in best)
    if least > most:
        # They cannot all be right: the union is used, and marked as unsteady.
        least = min(each.least_ns for each in best)
        most = max(each.most_ns for each in best)
        return _middle_of(least, most, len(best), steady=False)
    return _middle_of(least, most, len(best), steady=True)


def _middle_of(least_ns: int, most_ns: int, exchanges: int, *, steady: bool) -> Offset:
    middle = (least_ns + most_ns) // 2
    widest = max(most_ns - middle, middle - least_ns)
    return Offset(offset_ns=middle, uncertainty_ns=widest, exchanges=exchanges, steady=steady)


NS = 1_000_000_000
FARTHEST_S = 60.0
"""The maximum wait of an agent."""


class CommonStart(msgspec.Struct, frozen=True, kw_only=True):
    """The common start."""

    at_ns: int
    """By the controller's clock."""
    starts_ns: dict[str, int]
    """The same instant by each agent's clock."""
    bound_ns: int
    """Maximum difference between the starts of two agents with correctly measured clocks."""


def choose_start(
    now_ns: int, offsets: Mapping[str, Offset], *, lead_s: float, skew_limit_s: float
) -> CommonStart:
    """Return the start instant after the lead.

    Raise if the clocks are too uncertain.
    """
    bound_ns = start_bound_ns(offsets)
    if bound_ns > skew_limit_s * NS:
        raise _too_large(offsets, bound_ns, skew_limit_s)
    at_ns = now_ns + round(min(lead_s, FARTHEST_S) * NS)
    starts_ns = {agent: at_ns + offset.offset_ns for agent, offset in offsets.items()}
    return CommonStart(at_ns=at_ns, starts_ns=starts_ns, bound_ns=bound_ns)


def start_bound_ns(offsets: Mapping[str, Offset]) -> int:
    """Return the maximum difference between the starts of any two agents."""
    worst = sorted((offset.uncertainty_ns for offset in offsets.values()), reverse=True)
    return sum(worst[:2])


def spread_of(
    start: CommonStart, began_ns: Mapping[str, int], offsets: Mapping[str, Offset]
) -> Spread | None:
    """Return the spread of the actual starts, from each agent's clock.

    Return None if there were none.
    """
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
    """Return how long after the common start an agent began, by true time.

    Return None if unknown.
    """
    if start is None or offset is None or not started_at_ns:
        return None
    return (started_at_ns - offset.offset_ns - start.at_ns) / 1e6


def _too_large(offsets: Mapping[str, Offset], bound_ns: int, skew_limit_s: float) -> SkewTooLarge:
    worst = sorted(offsets.items(), key=lambda item: -item[1].uncertainty_ns)[:2]
    listed = ", ".join(f"{agent} ±{took(offset.uncertainty_ns / 1e6)}" for agent, offset in worst)
    wild = [agent for agent, offset in offsets.items() if not offset.steady]
    why = f" The clock of {', '.join(wild)} was set meanwhile, or drifts." if wild else ""
    return SkewTooLarge(
        f"The agents might begin {took(bound_ns / 1e6)} apart, and {took(skew_limit_s * 1e3)} is the limit: "
        f"their clocks are known no better than {listed}.{why}",
        todo="Allow more with skew-limit, or look at the network between here and the agents.",
        facts={
            "bound_ms": bound_ns / 1e6,
            "limit_ms": skew_limit_s * 1e3,
            "agents": [agent for agent, _ in worst],
        },
    )
