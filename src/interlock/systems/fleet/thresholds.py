"""Thresholds: what a workload has to reach, judged by its result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from interlock.wire.workloads import Latencies

LATENCIES = ("mean_ms", "p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms")
AT_MOST = (*LATENCIES, "error_share")
AT_LEAST = ("rate",)
NAMES = (*AT_MOST, *AT_LEAST)
"""Latencies in milliseconds, failed operations as a share of all, and operations per second."""
HIGHEST = 1e12


class Threshold(msgspec.Struct, frozen=True, kw_only=True):
    """One limit, and whether it was kept."""

    name: str
    limit: float
    passed: bool
    value: float | None = None
    """What was measured; nothing (null) where nothing was, which passes no threshold."""
    at_least: bool = False
    """The value has to be the limit or more; otherwise the limit or less."""

    @property
    def sentence(self) -> str:
        """The limit and the value, for people."""
        wanted = "at least" if self.at_least else "at most"
        found = "was not measured" if self.value is None else f"is {self.value:,.4g}"
        return f"{self.name} {found}, and has to be {wanted} {self.limit:,.4g}"


def judged(
    limits: Mapping[str, float], latencies: Latencies, *, rate: float, operations: int, errors: int
) -> Iterator[Threshold]:
    """Yield each limit with what came of it."""
    values: dict[str, float | None] = {name: getattr(latencies, name) for name in LATENCIES}
    values["error_share"] = errors / operations if operations else None
    values["rate"] = rate
    for name, limit in limits.items():
        value, at_least = values[name], name in AT_LEAST
        passed = value is not None and (value >= limit if at_least else value <= limit)
        yield Threshold(name=name, limit=limit, passed=passed, value=value, at_least=at_least)


def faults_of(limits: Mapping[str, float]) -> Iterator[str]:
    """Yield what is wrong with limits that were asked for."""
    for name, limit in limits.items():
        if name not in NAMES:
            yield f"there is no threshold {name[:40]!r}; there are {', '.join(NAMES)}"
        elif not 0 <= limit <= HIGHEST:
            yield f"the threshold {name} is {limit:g} and must be 0 to {HIGHEST:g}"
