"""Histograms of agents: validated, merged, and evaluated for percentiles.

A percentile of a fleet is that of the merged histogram; the mean of the agents' percentiles would be
meaningless. Data of an agent may be damaged: it is accepted only if it decodes, is not too large, and holds
as many values as the agent says.

Why: decision 0236.
"""

from __future__ import annotations

import math
import zlib
from bisect import bisect_left
from itertools import accumulate
from typing import Protocol

from hdrh.codec import HdrCookieException, HdrHistogramSettingsException, HdrLengthException
from hdrh.histogram import HdrHistogram

from interlock.wire.workloads import Latencies


class Histogram(Protocol):
    """The members of `HdrHistogram` in use; its library brings no types."""

    counts: list[int]
    total_count: int
    min_value: int
    max_value: int

    def add(self, other: Histogram, /) -> None: ...
    def encode(self) -> bytes: ...
    def get_counts_array_index(self, value: int, /) -> int: ...
    def get_highest_equivalent_value(self, value: int, /) -> int: ...
    def get_max_value(self) -> int: ...
    def get_target_count_at_percentile(self, percentile: float, /) -> int: ...
    def get_total_count(self) -> int: ...
    def get_value_from_index(self, index: int, /) -> int: ...
    def record_value(self, value: int, /) -> bool: ...
    def set_end_time_stamp(self, at_ms: float, /) -> None: ...
    def set_start_time_stamp(self, at_ms: float, /) -> None: ...


LOWEST_NS, HIGHEST_NS, SIGNIFICANT_FIGURES = 1, 3_600_000_000_000, 3
"""From a nanosecond to an hour, the maximum duration of a workload."""
MAX_ENCODED = 262_144
MAX_DECODED = 8 * 1_048_576
"""Maximum decoded bytes: 3,600 seconds in nanoseconds to three figures take 0.3 MB."""
COOKIE, HEADER_BYTES = (0x1C849314).to_bytes(4, "big"), 8
"""Header of a compressed histogram of the second format version: this, and the length of the rest."""
PERCENTILES = (50.0, 90.0, 99.0, 99.9)
STEPS_OF_A_NINE = 20
MOST_NINES = 6

_BROKEN = (
    ValueError,
    TypeError,
    IndexError,
    OverflowError,
    MemoryError,
    AssertionError,
    RuntimeError,
    zlib.error,
    HdrCookieException,
    HdrHistogramSettingsException,
    HdrLengthException,
)


class CorruptHistogram(Exception):
    """The data of an agent cannot be a valid measurement."""


def empty() -> Histogram:
    """Return an empty histogram with the range of agents."""
    histogram: Histogram = HdrHistogram(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_FIGURES)
    return histogram


def read(encoded: bytes, *, expected: int) -> Histogram | None:
    """Decode the histogram of a message; None if there were no operations."""
    if not encoded:
        if expected:
            raise CorruptHistogram(f"{expected:,} operations, and no histogram of them")
        return None
    histogram = _decoded(encoded)
    if histogram.get_total_count() != expected:
        raise CorruptHistogram(
            f"the histogram holds {histogram.get_total_count():,} values for {expected:,} operations"
        )
    return histogram


def latencies(histogram: Histogram) -> Latencies:
    """Return the percentiles of a histogram."""
    if not histogram.get_total_count():
        return Latencies()
    # The library scans all its 30,000 counters in Python for each query, and only those between the shortest
    # and the longest operation can be other than 0.
    last = histogram.get_counts_array_index(histogram.max_value)
    counts: list[int] = histogram.counts[: last + 1]
    totals = list(accumulate(counts))
    p50, p90, p99, p999 = (_value_at(histogram, totals, each) / 1e6 for each in PERCENTILES)
    return Latencies(
        count=histogram.get_total_count(),
        mean_ms=_mean(histogram, counts) / 1e6,
        p50_ms=p50,
        p90_ms=p90,
        p99_ms=p99,
        p999_ms=p999,
        max_ms=histogram.get_max_value() / 1e6,
    )


def by_nines(histogram: Histogram) -> list[tuple[float, float]]:
    """Return the percentile curve of latencies.

    It has the latency in milliseconds by the number of nines. 0 nines mean 0 %, 1 is 90 %, 2 are 99 %. It
    ends with the slowest operation.
    """
    last = histogram.get_counts_array_index(histogram.max_value)
    totals = list(accumulate(histogram.counts[: last + 1]))
    most = math.log10(max(2, totals[-1]))
    steps = max(1, round(most * STEPS_OF_A_NINE))
    found = []
    for step in range(steps + 1):
        nines = most * step / steps
        found.append((nines, _value_at(histogram, totals, 100 * (1 - 10.0**-nines)) / 1e6))
    return found


def at_nines(histogram: Histogram) -> list[tuple[float, float]]:
    """Return the percentile curve at common nines, for comparisons."""
    last = histogram.get_counts_array_index(histogram.max_value)
    totals = list(accumulate(histogram.counts[: last + 1]))
    most = min(MOST_NINES, math.log10(max(2, totals[-1])))
    nines = [step / STEPS_OF_A_NINE for step in range(math.ceil(most * STEPS_OF_A_NINE) + 1)]
    return [(each, _value_at(histogram, totals, 100 * (1 - 10.0**-each)) / 1e6) for each in nines]


def _value_at(histogram: Histogram, totals: list[int], percentile: float) -> int:
    wanted = histogram.get_target_count_at_percentile(percentile)
    value = histogram.get_value_from_index(bisect_left(totals, wanted))
    highest: int = histogram.get_highest_equivalent_value(value)
    return highest


def _mean(histogram: Histogram, counts: list[int]) -> float:
    """Return the mean; every value counts as the middle of its bucket."""
    whole = 0.0
    for index, count in enumerate(counts):
        if count:
            lowest = histogram.get_value_from_index(index)
            whole += count * (lowest + histogram.get_highest_equivalent_value(lowest)) / 2
    return whole / float(histogram.get_total_count())


def written(histogram: Histogram) -> str:
    """Encode in the format of HdrHistogram's tools."""
    encoded: bytes = histogram.encode()
    return encoded.decode("ascii")


def unwritten(encoded: str) -> Histogram:
    """Decode the format of `written`."""
    histogram: Histogram = HdrHistogram.decode(encoded)
    return histogram


def taken_out(whole: Histogram, part: Histogram) -> Histogram:
    """Return the whole without a part that was added before.

    The whole is consumed.
    """
    last = part.get_counts_array_index(part.max_value)
    for index, count in enumerate(part.counts[: last + 1]):
        if count:
            whole.counts[index] -= count
    whole.total_count -= part.get_total_count()
    left = empty()
    if whole.total_count:
        left.add(whole)
        counts = whole.counts[: whole.get_counts_array_index(whole.max_value) + 1]
        there = [index for index, count in enumerate(counts) if count]
        left.min_value, left.max_value = map(whole.get_value_from_index, (there[0], there[-1]))
    return left


def added(whole: Histogram, part: Histogram) -> None:
    """Merge a part into the whole; raise if a value does not fit."""
    expected = whole.get_total_count() + part.get_total_count()
    try:
        whole.add(part)
    except _BROKEN as error:
        raise CorruptHistogram(f"the histogram does not fit the others: {error}") from error
    if whole.get_total_count() != expected:
        raise CorruptHistogram("the histogram holds values that are longer than an hour")


def _decoded(encoded: bytes) -> Histogram:
    if len(encoded) > MAX_ENCODED:
        raise CorruptHistogram(f"the histogram has {len(encoded):,} bytes")
    try:
        stream = _stream(encoded)
        _refuse_growth(stream)
        histogram: Histogram = HdrHistogram.decode(stream, b64_wrap=False)
    except _BROKEN as error:
        reason = str(error) or type(error).__name__
        raise CorruptHistogram(f"the histogram cannot be read: {reason}") from error
    return histogram


def _stream(encoded: bytes) -> bytes:
    """Return the compressed stream without its header; older agents sent none."""
    if encoded[:3] != COOKIE[:3]:
        return encoded
    length, stream = int.from_bytes(encoded[4:HEADER_BYTES], "big"), encoded[HEADER_BYTES:]
    if encoded[:4] != COOKIE or length != len(stream):
        raise CorruptHistogram(f"the header says {length:,} bytes and there are {len(stream):,}")
    return stream


def _refuse_growth(encoded: bytes) -> None:
    """Raise if the stream decompresses to too much.

    A few bytes can stand for billions.
    """
    unpacking = zlib.decompressobj()
    if len(unpacking.decompress(encoded, MAX_DECODED)) >= MAX_DECODED:
        raise CorruptHistogram("the histogram is too large")
