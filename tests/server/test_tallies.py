"""What is counted by ourselves reads as what Prometheus would have counted."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from interlock.server.metrics import LabelledCounter, Timing
from interlock.wire.metrics import Metric

MOVES = Metric("moves_total", "counter", "Moves.", ("machine", "to"))
TIMES = Metric("move_seconds", "histogram", "How long.", ("machine",), (0.1, 1.0, 10.0))


def test_own_counters_and_timings_are_exposed_exactly_like_those_of_the_prometheus_client() -> None:
    own, theirs = CollectorRegistry(), CollectorRegistry()
    tally, counter = LabelledCounter(MOVES, own), MOVES.counter(theirs)
    timing, histogram = Timing(TIMES, own), TIMES.histogram(theirs)
    for machine, to, seconds in (("job", "DONE", 0.1), ("job", "DONE", 0.1001), ('a"b\\', "X", 99.0)):
        tally.times[machine, to] += 1
        counter.labels(machine, to).inc()
        timing.took((machine,), seconds)
        histogram.labels(machine).observe(seconds)
    assert _page(own) == _page(theirs)


def test_a_counter_without_samples_is_exposed_with_its_help_and_type_only() -> None:
    registry = CollectorRegistry()
    LabelledCounter(MOVES, registry)
    assert _page(registry) == ["# HELP moves_total Moves.", "# TYPE moves_total counter"]


def _page(registry: CollectorRegistry) -> list[str]:
    """Without when each was made, which says nothing of what was counted."""
    return [line for line in generate_latest(registry).decode().splitlines() if "_created" not in line]
