"""Counting what happens thousands of times a second, for Prometheus.

Its own counters take a lock for each step, and its histograms walk along their bounds; in a loop
that nobody else counts in neither is needed. Here counting is a line of a dict, and whoever asks for
the page pays for making families of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from interlock.wire.metrics import Metric

Labels = tuple[str, ...]


class Tally(Collector):
    """How often something has happened, by its labels; `tally.times[labels] += 1` counts."""

    def __init__(self, metric: Metric, registry: CollectorRegistry) -> None:
        self._metric = metric
        self.times: Counter[Labels] = Counter()
        registry.register(self)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """What Prometheus is told."""
        family = CounterMetricFamily(self._metric.name, self._metric.says, labels=self._metric.labels)
        for labels, number in self.times.items():
            family.add_metric(labels, number)
        yield family


class Timing(Collector):
    """How long something took, by its labels."""

    def __init__(self, metric: Metric, registry: CollectorRegistry) -> None:
        self._metric = metric
        self._bounds = metric.buckets
        self._names = [*map(str, metric.buckets), "+Inf"]
        self._numbers: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}
        registry.register(self)

    def took(self, labels: Labels, seconds: float) -> None:
        """Once more."""
        numbers = self._numbers.get(labels)
        if numbers is None:
            numbers = self._numbers[labels] = [0] * len(self._names)
            self._sums[labels] = 0.0
        numbers[bisect_left(self._bounds, seconds)] += 1
        self._sums[labels] += seconds

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """What Prometheus is told: of each bound how many were within it."""
        family = HistogramMetricFamily(self._metric.name, self._metric.says, labels=self._metric.labels)
        for labels, numbers in self._numbers.items():
            within = list(zip(self._names, accumulate(numbers), strict=True))
            family.add_metric(labels, within, self._sums[labels])
        yield family
