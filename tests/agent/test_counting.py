"""Counting operations: exactly, from any thread, and in the buckets of a histogram."""

from __future__ import annotations

import base64
import threading

from hdrh.histogram import HdrHistogram
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import pick

from interlock.agent.load import LONGEST_NS, AgentCounts
from interlock.agent.server import encoded


def test_many_threads_lose_nothing_while_samples_are_taken() -> None:
    counting, each, begin = AgentCounts(), 20_000, threading.Barrier(5)

    def work(number: int) -> None:
        begin.wait()
        for took in range(each):
            counting.note(took, 2, "no" if number == 0 else None)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    begin.wait()
    samples = []
    while any(thread.is_alive() for thread in threads):
        samples.append(counting.take(0))
    samples.append(counting.take(0))
    assert sum(one.operations for one in samples) == 4 * each
    assert sum(one.errors for one in samples) == each
    assert sum(one.size for one in samples) == 8 * each
    assert sum(sum(one.counts.values()) for one in samples) == 4 * each


@settings(deadline=None, max_examples=pick(5, 40))
@given(st.lists(st.integers(-5, 2 * LONGEST_NS) | st.integers(0, 5_000_000), max_size=50))
def test_encoded_counts_have_the_same_percentiles_as_an_hdr_histogram_of_the_same_values(
    values: list[int],
) -> None:
    counting = AgentCounts()
    expected = HdrHistogram(1, LONGEST_NS, 3)
    for value in values:
        counting.note(value)
        expected.record_value(min(max(value, 0), LONGEST_NS))
    sample = counting.take(0)
    assert sample.operations == len(values)
    raw = encoded(sample.counts)
    assert bool(raw) == bool(values)
    if raw:
        decoded = HdrHistogram.decode(base64.b64encode(raw))
        assert decoded.get_total_count() == len(values)
        percentiles = [0.0, 50.0, 90.0, 99.0, 100.0]
        seen, right = (one.get_percentile_to_value_dict(percentiles) for one in (decoded, expected))
        assert seen == right


def test_only_an_integer_returned_by_an_operation_counts_as_its_size() -> None:
    class Ambiguous:
        def __bool__(self) -> bool:
            raise ValueError("neither true nor false")

    counting, answers = AgentCounts(), (7, 0, None, True, "text", 2.5, Ambiguous())
    for answer in answers:
        counting.note(1, answer)  # type: ignore[arg-type]
    sample = counting.take(0)
    assert (sample.operations, sample.errors, sample.size) == (len(answers), 0, 7)
