"""What is counted by ourselves reads as what Prometheus would have counted."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from interlock.server.metrics import LabelledCounter, Timing
from interlock.wire.metrics import Metric

MOVES = Metric("moves_total", "counter", "Moves.", ("machine", "to"))
TIMES = Metric("move_seconds", "histogram", "How long.", ("machine",), (0.1, 1.0, 10.0))


def test_the_page_is_the_one_that_prometheus_own_counters_make() -> None:
    own, theirs = CollectorRegistry(), CollectorRegistry()
    tally, counter = LabelledCounter(MOVES, own), MOVES.counter(theirs)
    timing, histogram = Timing(TIMES, own), TIMES.histogram(theirs)
    for machine, to, seconds in (("job", "DONE", 0.1), ("job", "DONE", 0.1001), ('a"b\\', "X", 99.0)):
        tally.times[machine, to] += 1
        counter.labels(machine, to).inc()
        timing.took((machine,), seconds)
        histogram.labels(machine).observe(seconds)
    assert _page(own) == _page(theirs)


def test_what_was_never_counted_has_its_words_and_no_number() -> None:
    registry = CollectorRegistry()
    LabelledCounter(MOVES, registry)
    assert _page(registry) == ["# HELP moves_total Moves.", "# TYPE moves_total counter"]


def _page(registry: CollectorRegistry) -> list[str]:
    """Without when each was made, which says nothing of what was counted."""
    return [line for line in generate_latest(registry).decode().splitlines() if "_created" not in line]
