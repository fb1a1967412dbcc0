"""Many agents' numbers as one."""

from __future__ import annotations

import base64
import random
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.agent.server import encoded
from interlock.lifecycles.workload import Status
from interlock.systems.fleet import histograms
from interlock.systems.fleet.histograms import CorruptHistogram
from interlock.systems.fleet.results import AgentReport, MergedReports

NS = 1_000_000_000
Pack = Callable[[list[int]], bytes]


def packed(values: list[int]) -> bytes:
    """A histogram as an agent sends it."""
    return encoded(Counter(values))


def bare(values: list[int]) -> bytes:
    """The same as agents sent it before: the compressed stream without the header of the format."""
    histogram = HdrHistogram(1, 3_600 * NS, 3, b64_wrap=False)
    for value in values:
        assert histogram.record_value(value)
    return bytes(histogram.encode())


def report(agent: str, sequence: int, values: list[int], *, before: int = 0, **more: object) -> AgentReport:
    """One second of an agent in which operations took so long."""
    fields: dict[str, object] = {
        "elapsed_ns": sequence * NS + 3_000_000,
        "operations": before + len(values),
        "interval_operations": len(values),
        "histogram": packed(values) if values else b"",
        **more,
    }
    return AgentReport(agent=agent, sequence=sequence, status=Status.RUNNING, **fields)  # type: ignore[arg-type]


def test_percentiles_are_those_of_all_operations_and_not_means_of_percentiles() -> None:
    merged = MergedReports(["busy", "slow"])
    merged.add(report("busy", 1, [1_000_000] * 990))
    merged.add(report("slow", 1, [1_000_000_000] * 10))
    found = histograms.latencies(merged.histogram)
    assert found.count == 1_000
    assert found.p50_ms == pytest.approx(1.0, rel=0.002)
    assert found.p99_ms == pytest.approx(1.0, rel=0.002)  # a mean of both agents' would be 500
    assert found.p999_ms == pytest.approx(1_000.0, rel=0.002)


@given(st.lists(st.lists(st.integers(1_000, 10 * NS), max_size=60), min_size=1, max_size=6))
@settings(deadline=None, max_examples=30)
def test_merged_latencies_equal_those_of_one_histogram_of_all_operations(by_agent: list[list[int]]) -> None:
    merged = MergedReports([str(number) for number in range(len(by_agent))])
    for number, values in enumerate(by_agent):
        assert merged.add(report(str(number), 1, values)) == ""
    everything = histograms.empty()
    for values in by_agent:
        for value in values:
            everything.record_value(value)
    assert histograms.latencies(merged.histogram) == histograms.latencies(everything)
    assert merged.operations == sum(map(len, by_agent))


@given(st.lists(st.integers(1, 3_600 * NS), min_size=1, max_size=200))
@settings(deadline=None, max_examples=50)
def test_percentiles_are_read_as_the_library_reads_them(values: list[int]) -> None:
    histogram: Any = histograms.empty()
    for value in values:
        histogram.record_value(value)
    found = histograms.latencies(histogram)
    at = histogram.get_percentile_to_value_dict(list(histograms.PERCENTILES))
    percentiles = (found.p50_ms, found.p90_ms, found.p99_ms, found.p999_ms)
    assert percentiles == tuple(at[each] / 1e6 for each in histograms.PERCENTILES)
    assert found.mean_ms == pytest.approx(sum(values) / len(values) / 1e6, rel=0.001)


def test_a_late_report_for_a_settled_second_is_added_to_that_second() -> None:
    merged = MergedReports(["a", "b"])
    for second in (1, 2, 3):
        for agent in ("a", "b"):
            merged.add(report(agent, second, [second * 1_000_000] * 5, before=5 * second - 5))
    late = report("b", 4, [7_000_000_000], before=15, elapsed_ns=NS)
    merged.add(late)
    first = merged.seconds()[0]
    assert (first.operations, first.latencies.count) == (11, 11)
    assert first.latencies.max_ms == pytest.approx(7_000, rel=0.002)
    assert sum(histogram.get_total_count() for _, histogram in merged.histograms_by_second()) == 31


def test_a_duplicate_report_is_counted_once_and_missing_reports_are_counted_as_missing() -> None:
    merged = MergedReports(["a"])
    first = report("a", 1, [1_000] * 7)
    merged.add(first)
    merged.add(first)
    merged.add(report("a", 4, [1_000] * 3, before=30))
    assert merged.histogram.get_total_count() == 10
    assert merged.operations == 33
    assert merged.parts["a"].missing == 2


def test_a_second_is_settled_when_every_agent_that_is_not_lost_has_reported_it() -> None:
    merged = MergedReports(["a", "b"])
    merged.add(report("a", 1, [1_000] * 5))
    merged.add(report("a", 2, [1_000] * 6, before=5))
    assert merged.settled == 0
    merged.add(report("b", 1, [2_000] * 5))
    assert merged.settled == 1
    latest = merged.latest()
    assert latest is not None
    assert (latest.second, latest.operations, latest.agents) == (0, 10, 2)
    merged.lose("b")
    assert merged.settled == 2


WHOLE, SOUND = packed([1_000] * 5), bare([1_000] * 5)
UNPACKED = zlib.decompress(SOUND)
DAMAGES: dict[str, Callable[[], bytes]] = {
    "cut": lambda: SOUND[:-6],
    "cut below its header": lambda: WHOLE[:-6],
    "longer than its header says": lambda: WHOLE + b"\0",
    "a header alone": lambda: WHOLE[:8],
    "other header": lambda: b"\x1c\x84\x93\x03" + WHOLE[4:],
    "turned": lambda: bytes(byte ^ 0x5A for byte in SOUND),
    "other cookie": lambda: zlib.compress(b"\0\0\0\0" + UNPACKED[4:]),
    "no range": lambda: zlib.compress(UNPACKED[:16] + b"\0" * 16 + UNPACKED[32:]),
    "too large": lambda: zlib.compress(b"\0" * (64 * 1_048_576), 1),
    "too long": lambda: random.Random(1).randbytes(300_000),
    "not as many": lambda: packed([1_000] * 4),
    "nothing": lambda: b"",
    "a text": lambda: b"histogram",
}


@pytest.mark.parametrize("damage", list(DAMAGES))
def test_a_damaged_histogram_flags_its_agent_and_leaves_the_others_alone(damage: str) -> None:
    merged = MergedReports(["sound", "broken"])
    merged.add(report("sound", 1, [1_000_000] * 5))
    broken = report("broken", 1, [9] * 5, histogram=DAMAGES[damage]())
    assert merged.add(broken).startswith("report 1: ")
    assert merged.parts["broken"].fault
    assert not merged.parts["sound"].fault
    assert merged.operations == 10  # what it says it did is counted; what it cannot show is not measured
    assert merged.histogram.get_total_count() == 5
    assert histograms.latencies(merged.histogram).p50_ms == pytest.approx(1.0, rel=0.002)


def test_a_histogram_on_the_wire_can_be_decoded_by_the_standard_hdrhistogram_decoder() -> None:
    """HdrHistogram V2 compressed has a cookie and a length before the stream; only base64 is left away."""
    wire = packed([1_000_000] * 5)
    assert wire[:4] == (0x1C849314).to_bytes(4, "big")
    assert HdrHistogram.decode(base64.b64encode(wire)).get_total_count() == 5


@pytest.mark.parametrize("pack", [packed, bare])
def test_histograms_with_the_header_and_of_older_agents_without_it_are_read(pack: Pack) -> None:
    merged = MergedReports(["a"])
    assert merged.add(report("a", 1, [1_000_000] * 5, histogram=pack([1_000_000] * 5))) == ""
    assert merged.histogram.get_total_count() == 5


def test_a_late_agent_is_counted_in_the_seconds_in_which_it_worked() -> None:
    """It counts its own time from its own start, which was 3.4 s after that of the others."""
    merged = MergedReports(["on time", "late"])
    for number in (1, 2, 3):
        merged.add(report("on time", number, [1_000] * 20, before=20 * number - 20))
    for number in (1, 2, 3):
        late_ns = 3 * NS + 400_000_000
        elapsed_ns = number * NS - 400_000_000  # samples are taken at whole seconds of the common time
        merged.add(
            report(
                "late", number, [1_000] * 20, before=20 * number - 20, elapsed_ns=elapsed_ns, late_ns=late_ns
            )
        )
    rows = [(each.second, each.agents, each.operations) for each in merged.seconds()]
    assert rows == [(0, 1, 20), (1, 1, 20), (2, 1, 20), (3, 1, 20), (4, 1, 20), (5, 1, 20)]


@pytest.mark.parametrize("field", ["elapsed_ns", "late_ns"])
def test_a_time_that_cannot_be_flags_its_agent_and_makes_no_seconds(field: str) -> None:
    merged = MergedReports(["a"])
    assert "cannot be" in merged.add(report("a", 1, [1_000], **{field: 2**63}))
    assert [each.second for each in merged.seconds()] in ([0], [1])


def test_the_totals_after_excluding_agents_equal_those_of_the_remaining_agents_alone() -> None:
    chance = random.Random(1)
    whole, others = MergedReports(["a", "b", "c", "d"]), MergedReports(["a", "c"])
    for number in range(1, 6):
        for agent in ("a", "b", "c", "d"):
            values = [chance.randrange(1_000, 10 * NS) for _ in range(chance.randrange(30))]
            agent_report = report(agent, number, values, interval_errors=len(values) // 2, errors=number)
            whole.add(agent_report)
            if agent in others.parts:
                others.add(agent_report)
    whole.add(report("b", 6, [1_000]))  # in a second in which nobody else did anything
    for _ in range(2):  # doing it again changes nothing
        list(whole.leave_out(["b", "d"]))
        assert (whole.operations, whole.errors) == (others.operations, others.errors)
        assert histograms.latencies(whole.histogram) == histograms.latencies(others.histogram)
        assert whole.seconds() == others.seconds()
        by_second = [(n, histograms.written(h)) for n, h in whole.histograms_by_second()]
        assert by_second == [(n, histograms.written(h)) for n, h in others.histograms_by_second()]
    assert whole.parts["b"].last is not None, "what it did itself is still known"


def test_an_agent_that_has_ended_does_not_keep_its_last_second_on_the_screen() -> None:
    """Others go on when one has done all its operations, or began earlier."""
    merged = MergedReports(["a", "b"])
    merged.add(report("a", 1, [1_000] * 5, completed=True))
    for number in (1, 2, 3):
        merged.add(report("b", number, [1_000] * 7, before=7 * number - 7))
    shown = merged.latest()
    assert shown is not None
    assert (shown.second, shown.operations) == (2, 7)


def test_a_silent_agent_does_not_keep_the_last_second_of_all_on_the_screen() -> None:
    merged = MergedReports(["a", "b"])
    for agent in ("a", "b"):
        merged.add(report(agent, 1, [1_000] * 5))
    for number in (2, 3):
        merged.add(report("a", number, [1_000] * 5, before=5 * number - 5))
    shown, without = merged.latest(), merged.latest(silent={"b"})
    assert shown is not None
    assert without is not None
    assert (shown.second, shown.operations) == (0, 10)
    assert (without.second, without.operations) == (2, 5)
    assert merged.latest(silent={"a", "b"}) is None


def test_values_beyond_an_hour_do_not_vanish_silently() -> None:
    wide = HdrHistogram(1, 100 * 3_600 * NS, 3)
    wide.record_value(50 * 3_600 * NS)
    with pytest.raises(CorruptHistogram):
        histograms.added(histograms.empty(), wide)
