"""Histograms of agents: read with suspicion, merged, and asked for percentiles.

A percentile of a fleet is read off the merged histogram. The mean of the agents' percentiles would be
some other number that nobody has a name for. What an agent sends may be damaged: it is believed only if
it decodes, is not larger than it may be, and holds as many values as the agent says.
"""

from __future__ import annotations

import math
import zlib
from bisect import bisect_left
from itertools import accumulate
from typing import TypeAlias

from hdrh.codec import HdrCookieException, HdrHistogramSettingsException, HdrLengthException
from hdrh.histogram import HdrHistogram

from interlock.wire.workloads import Latencies

Histogram: TypeAlias = HdrHistogram

LOWEST_NS, HIGHEST_NS, SIGNIFICANT_FIGURES = 1, 3_600_000_000_000, 3
"""From a nanosecond to an hour, which is the longest that a workload may last."""
MAX_ENCODED = 262_144
MAX_DECODED = 8 * 1_048_576
"""So many bytes at most become of those above: 3,600 seconds in nanoseconds to three figures take 0.3 MB."""
COOKIE, HEADER_BYTES = (0x1C849314).to_bytes(4, "big"), 8
"""How a compressed histogram of the format's second version begins: this, and the length of what follows."""
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
    """What an agent has sent cannot be what it has measured."""


def empty() -> Histogram:
    """A histogram in which everything fits that agents record."""
    return HdrHistogram(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_FIGURES)


def read(encoded: bytes, *, expected: int) -> Histogram | None:
    """The histogram of one message; None when it has none because nothing was done."""
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
    """The percentiles of what was recorded."""
    if not histogram.get_total_count():
        return Latencies()
    # The library walks all its counters in Python for each question. There are 30,000 of them, and only
    # those between the shortest and the longest operation can be other than 0.
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
    """The whole curve: after how many nines of the operations which latency, in milliseconds.

    0 nines are none of them, 1 is 90 %, 2 are 99 %. It ends where one operation is left, the slowest.
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
    """Return the same curve at nines that all histograms have in common, so that two can be compared."""
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
    """Every value stands for the middle of its bucket."""
    whole = 0.0
    for index, count in enumerate(counts):
        if count:
            lowest = histogram.get_value_from_index(index)
            whole += count * (lowest + histogram.get_highest_equivalent_value(lowest)) / 2
    return whole / float(histogram.get_total_count())


def written(histogram: Histogram) -> str:
    """As HdrHistogram's own tools read it."""
    encoded: bytes = histogram.encode()
    return encoded.decode("ascii")


def unwritten(encoded: str) -> Histogram:
    """What `written` has made of one."""
    return HdrHistogram.decode(encoded)


def taken_out(whole: Histogram, part: Histogram) -> Histogram:
    """The whole without a part that was added to it before; the whole is used up."""
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
    """Merge a part into the whole; a value that does not fit is told, not lost."""
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
        return HdrHistogram.decode(stream, b64_wrap=False)
    except _BROKEN as error:
        told = str(error) or type(error).__name__
        raise CorruptHistogram(f"the histogram cannot be read: {told}") from error


def _stream(encoded: bytes) -> bytes:
    """The compressed stream without its header; earlier agents sent it without one."""
    if encoded[:3] != COOKIE[:3]:
        return encoded
    length, stream = int.from_bytes(encoded[4:HEADER_BYTES], "big"), encoded[HEADER_BYTES:]
    if encoded[:4] != COOKIE or length != len(stream):
        raise CorruptHistogram(f"the header says {length:,} bytes and there are {len(stream):,}")
    return stream


def _refuse_growth(encoded: bytes) -> None:
    """A few bytes can be made to stand for billions, and the library would believe them."""
    unpacking = zlib.decompressobj()
    if len(unpacking.decompress(encoded, MAX_DECODED)) >= MAX_DECODED:
        raise CorruptHistogram("the histogram grows beyond measure")
