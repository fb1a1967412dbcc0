"""The one true instant at which all agents begin, and how nearly they did.

The instant is chosen when every agent is READY and its clock was measured. Each is told the instant by
its own clock, so that a clock which is five seconds fast does no harm; what does harm is not to know
how fast it is. Therefore not the offsets are limited, but what is not known of them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from interlock.systems.fleet.clocks import Offset
from interlock.systems.fleet.figures import took
from interlock.wire.fleet.errors import SkewTooLarge

NS = 1_000_000_000
FARTHEST_S = 60.0
"""An agent refuses to wait for longer."""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """When all begin."""

    at_ns: int
    """By the controller's clock."""
    told_ns: dict[str, int]
    """The same instant by each agent's own clock."""
    bound_ns: int
    """Two agents whose clocks were measured right begin at most so far apart, for all that is known."""


class Spread(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How nearly they began at the same time."""

    spread_ns: int
    """From the first to the last."""
    uncertainty_ns: int
    latest_ns: int = 0
    """How much after the chosen instant the last one began."""
    agents: int = 0


def choose_start(now_ns: int, offsets: Mapping[str, Offset], *, lead_s: float, skew_limit_s: float) -> Start:
    """The instant, so long from now; refused when it is not known well enough what that is elsewhere."""
    bound_ns = start_bound_ns(offsets)
    if bound_ns > skew_limit_s * NS:
        raise _too_large(offsets, bound_ns, skew_limit_s)
    at_ns = now_ns + round(min(lead_s, FARTHEST_S) * NS)
    told = {agent: at_ns + offset.offset_ns for agent, offset in offsets.items()}
    return Start(at_ns=at_ns, told_ns=told, bound_ns=bound_ns)


def start_bound_ns(offsets: Mapping[str, Offset]) -> int:
    """How far apart any two of them may begin at worst: one as early as it may be, the other as late."""
    worst = sorted((offset.uncertainty_ns for offset in offsets.values()), reverse=True)
    return sum(worst[:2])


def spread_of(start: Start, began_ns: Mapping[str, int], offsets: Mapping[str, Offset]) -> Spread | None:
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


def began_ms(start: Start | None, offset: Offset | None, started_at_ns: int) -> float | None:
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
