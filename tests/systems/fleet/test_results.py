"""What a result says, what it is worth, and the forms in which it is saved."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

from interlock.errors import InvalidWorkload
from interlock.lifecycles.workload import Status
from interlock.systems.fleet.clocks import Offset, choose_start
from interlock.systems.fleet.histograms import by_nines, empty, latencies
from interlock.systems.fleet.report import files_of, nice, page, scale_for
from interlock.systems.fleet.results import AgentEnd, MergedReports, ResultInputs, result_of
from interlock.systems.fleet.spec import (
    can_still_do,
    checked,
    covered,
    verdict_of,
    with_port,
)
from interlock.systems.fleet.workload_file import read_workload
from interlock.wire.workloads import Coverage, Policy, Verdict, WorkloadResult, WorkloadSpec

from .test_merging import NS, report

DONE, ERROR, STOPPED, LOST = Status.COMPLETED, Status.ERROR, Status.ABORTED, None


@pytest.mark.parametrize(
    ("policy", "finals", "verdict"),
    [
        (Policy.ALL, [DONE, DONE], Verdict.COMPLETE),
        (Policy.ALL, [DONE, LOST], Verdict.FAILED),
        (Policy.MAJORITY, [DONE, DONE, ERROR], Verdict.PARTIAL),
        (Policy.MAJORITY, [DONE, ERROR], Verdict.FAILED),
        (Policy.BEST_EFFORT, [DONE, LOST, ERROR], Verdict.PARTIAL),
        (Policy.BEST_EFFORT, [LOST, ERROR], Verdict.FAILED),
    ],
)
def test_a_policy_sets_how_many_agents_are_needed_and_only_a_full_fleet_is_complete(
    policy: Policy, finals: list[Status | None], verdict: Verdict
) -> None:
    coverage = covered(policy, finals)
    assert verdict_of(coverage, stopped=False) is verdict
    assert can_still_do(policy, len(finals), coverage.lost) is (verdict is not Verdict.FAILED)


def test_a_stop_after_every_agent_has_completed_leaves_the_verdict_complete() -> None:
    everybody = covered(Policy.ALL, [DONE, DONE])
    assert verdict_of(everybody, stopped=True) is Verdict.COMPLETE
    assert verdict_of(covered(Policy.ALL, [DONE, STOPPED]), stopped=True) is Verdict.ABORTED


def a_result() -> tuple[WorkloadResult, MergedReports]:
    """Two of three agents, five seconds."""
    offsets = {name: Offset(offset_ns=7 * NS, uncertainty_ns=1_000_000) for name in ("a:1", "b:1", "c:1")}
    start = choose_start(100 * NS, offsets, lead_s=0.0, skew_limit_s=1.0)
    merged = MergedReports(offsets)
    for second in range(1, 6):
        for place, agent in enumerate(("a:1", "b:1")):
            merged.add(
                report(
                    agent,
                    second,
                    [1_000_000 * second] * 10,
                    before=10 * (second - 1),
                    started_at_ns=107 * NS + place * 2_000_000,
                )
            )
    endings = {
        "a:1": AgentEnd(workload_id="w1", final=DONE),
        "b:1": AgentEnd(workload_id="w2", final=DONE),
        "c:1": AgentEnd(workload_id="w3", error="<the agent> & was lost"),
    }
    spec = WorkloadSpec(kind="sleep", name="<b>", agents=tuple(offsets), policy=Policy.MAJORITY)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    known = ResultInputs(spec=spec, endings=endings, offsets=offsets, start=start, started_at=at)
    return result_of(known, merged), merged


def test_a_result_reports_which_part_of_the_fleet_it_covers() -> None:
    result, _ = a_result()
    assert result.verdict is Verdict.PARTIAL
    assert result.coverage == Coverage(agents=3, completed=2, lost=1, needed=2)
    assert result.sentence == ("2 of 3 agents completed, and majority needs 2: it covers only those.")
    assert result.operations == 100
    assert result.spread is not None
    assert result.spread.spread_ns == 2_000_000
    assert [each.began_ms for each in result.agents] == [0.0, 2.0, None]
    assert [each.second for each in result.seconds] == [0, 1, 2, 3, 4]


def test_the_saved_json_csv_histogram_and_html_files_are_valid_and_match_the_result(tmp_path: Path) -> None:
    result, merged = a_result()
    files = files_of(result, merged.histograms_by_second())
    assert json.loads(files["result.json"])["coverage"]["completed"] == 2

    rows = list(csv.DictReader(io.StringIO(files["seconds.csv"].decode())))
    assert [row["operations"] for row in rows] == ["20"] * 5
    assert float(rows[4]["p99_ms"]) == pytest.approx(5.0, rel=0.002)

    log = tmp_path / "latencies.hlog"
    log.write_bytes(files["latencies.hlog"])
    read, everything = HistogramLogReader(str(log), HdrHistogram(1, 3_600 * NS, 3)), 0
    while (interval := read.get_next_interval_histogram()) is not None:
        everything += interval.get_total_count()
    read.close()
    assert everything == 100

    page = files["report.html"].decode()
    assert "<b>" not in page.split("</style>")[1]
    assert "&lt;the agent&gt; &amp; was lost" in page
    drawings = [part.split("</svg>")[0] + "</svg>" for part in page.split("<svg")[1:]]
    assert len(drawings) == 3
    for drawing in drawings:
        ET.fromstring("<svg" + drawing)
    assert page.count("<polyline") == 5
    assert "http" not in page  # nothing is fetched from anywhere


def test_an_axis_ends_at_a_round_number() -> None:
    found = [nice(value) for value in (0, 0.7, 1, 1.01, 23, 99, 101)]
    assert found == pytest.approx([1.0, 0.8, 1.0, 1.2, 24.0, 100.0, 120.0])


def test_values_that_are_far_apart_are_drawn_so_that_the_small_ones_are_seen() -> None:
    near = scale_for([0.0, 3.0, 7.9])
    assert (near.logarithmic, near.ticks) == (False, [0.0, 2.0, 4.0, 6.0, 8.0])
    far = scale_for([2.2, 80.0])
    assert (far.logarithmic, far.ticks) == (True, [2.0, 5.0, 10.0, 20.0, 50.0, 100.0])
    assert [far.height(value) for value in (2.0, 100.0)] == [0.0, 1.0]
    assert not scale_for([0.0, 80.0]).logarithmic, "nothing has no place on a logarithmic scale"
    assert scale_for([]).top == 1.0


def test_the_curve_of_percentiles_agrees_with_the_percentiles_that_are_reported() -> None:
    histogram = empty()
    for value in range(1, 1_001):
        histogram.record_value(value * 1_000_000)
    curve, summary = dict(by_nines(histogram)), latencies(histogram)
    assert (curve[1.0], curve[2.0], curve[3.0]) == (summary.p90_ms, summary.p99_ms, summary.p999_ms)
    assert list(curve) == sorted(curve)


def test_a_result_of_nothing_is_a_page_as_well() -> None:
    spec = WorkloadSpec(kind="sleep", agents=("a:1",))
    known = ResultInputs(spec=spec, endings={"a:1": AgentEnd(workload_id="w")}, offsets={}, stopped="enough")
    shown = page(result_of(known, MergedReports(spec.agents)))
    assert "ABORTED" in shown
    assert "<svg" not in shown


WRONG = """\
kind: http
with: 7
duration: 2 parsecs
rate: fast
concurency: 4
policy: some
agents: [a, b]
skew-limit: 2d
"""


def test_every_fault_of_a_workload_file_is_reported_with_its_line_and_column() -> None:
    with pytest.raises(InvalidWorkload) as refused:
        read_workload(WRONG, "load.yml")
    assert refused.value.sentence.splitlines() == [
        "load.yml has 6 faults:",
        "load.yml:2:7: this has to be keys with values, not '7'",
        "load.yml:3:11: '2 parsecs' is not a duration; write 50ms, 30s, 10m or 1h",
        "load.yml:4:7: this has to be a number from 0 to 1,000,000, not 'fast'",
        "load.yml:5:1: there is no key of a workload 'concurency'; did you mean concurrency?",
        "load.yml:6:9: there is no policy 'some'; there is all, majority and best-effort",
        "load.yml:8:13: this has to be 1e-06s to 60s, not 2d",
    ]
    assert "docs/guides/fleet.md" in refused.value.todo


def test_thresholds_are_read_from_the_file_and_an_unknown_one_is_refused_with_its_place() -> None:
    spec = read_workload("kind: sleep\nthresholds: {p99_ms: 250, rate: 900}\n", "load.yml", ["a"])
    assert spec.thresholds == {"p99_ms": 250.0, "rate": 900.0}
    with pytest.raises(InvalidWorkload, match=r"load\.yml:2:14: there is no threshold 'p98_ms'"):
        read_workload("kind: sleep\nthresholds: {p98_ms: 250}\n", "load.yml", ["a"])


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("stages", "'stages': the rate is constant; run several workloads one after the other"),
        ("vus", "'vus'; did you mean concurrency?"),
        ("iterations", "'iterations'; did you mean operations?"),
        ("url", "'url': it belongs under with, for kind http"),
    ],
)
def test_a_workload_key_of_another_load_test_tool_is_refused_with_a_hint_to_the_equivalent(
    key: str, words: str
) -> None:
    """It said: did you mean agents?"""
    with pytest.raises(InvalidWorkload) as refused:
        read_workload(f"kind: sleep\n{key}: 1\n", "load.yml", ["a"])
    assert f"load.yml:2:1: there is no key of a workload {words}" in refused.value.sentence


def test_a_workload_file_is_read_into_a_complete_workload_spec() -> None:
    text = """\
kind: http
with: {url: "http://127.0.0.1:8080/", tries: 3}
duration: 1m
rate: 12.5
policy: best-effort
skew-limit: 50ms
lost-after: 5s
agents: [a.example, "b.example:7200", "[::1]:7167"]
"""
    spec = read_workload(text, "loads/checkout.yml")
    assert spec == WorkloadSpec(
        kind="http",
        name="checkout",
        spec={"url": "http://127.0.0.1:8080/", "tries": 3},
        agents=("a.example:7167", "b.example:7200", "[::1]:7167"),
        duration_s=60.0,
        rate=12.5,
        policy=Policy.BEST_EFFORT,
        skew_limit_s=0.05,
        lost_after_s=5.0,
    )
    assert read_workload(text, agents=("other",)).agents == ("other:7167",)


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        (WorkloadSpec(kind="sleep"), "there are 0 agents"),
        (WorkloadSpec(kind="sleep", agents=("a", "a:7167")), "a:7167 is there twice"),
        (WorkloadSpec(kind="sleep", agents=("a:99999",)), "'a:99999' is not HOST:PORT"),
        (
            WorkloadSpec(kind="sleep", agents=("a",), duration_s=4_000),
            "duration is 4000 and must be 0 to 3600",
        ),
        (WorkloadSpec(kind="", agents=("a",)), "kind has 1 to 100"),
    ],
)
def test_an_invalid_workload_is_refused_before_any_agent_is_contacted(spec: WorkloadSpec, fault: str) -> None:
    with pytest.raises(InvalidWorkload, match="The workload cannot be run") as refused:
        checked(spec)
    assert fault in refused.value.sentence


def test_agents_have_a_port_of_their_own_unless_another_is_given() -> None:
    assert [with_port(each) for each in ("a", "a:", "a:1", "[::1]:5")] == [
        "a:7167",
        "a:7167",
        "a:1",
        "[::1]:5",
    ]
