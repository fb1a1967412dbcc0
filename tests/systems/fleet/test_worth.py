"""What a result is worth: whom it speaks for, how late they were, and what was not measured."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from interlock.cli.nouns.workload_views import exit_code
from interlock.lifecycles import job
from interlock.lifecycles.workload import Status
from interlock.systems.fleet.clocks import Offset, choose_start, in_ms, took
from interlock.systems.fleet.outcome import (
    progress_of,
)
from interlock.systems.fleet.report import files_of, page
from interlock.systems.fleet.results import AgentEnd, MergedReports, ResultInputs, result_of
from interlock.systems.fleet.spec import (
    TASK,
)
from interlock.wire.jobs import JobView
from interlock.wire.workloads import Happened, Policy, Verdict, WorkloadResult, WorkloadSpec

from .test_merging import NS, report

DONE, LOST = Status.COMPLETED, None
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def result(merged: MergedReports, finals: dict[str, Status | None], **spec: Any) -> WorkloadResult:
    """The result of agents that ended so."""
    offsets = {agent: Offset(offset_ns=0, uncertainty_ns=1_000) for agent in finals}
    known = ResultInputs(
        spec=WorkloadSpec(kind="sleep", agents=tuple(finals), **spec),
        endings={agent: AgentEnd(workload_id=agent, final=final) for agent, final in finals.items()},
        offsets=offsets,
        start=choose_start(0, offsets, lead_s=0.0, skew_limit_s=1.0),
    )
    return result_of(known, merged)


def late(agent: str, late_s: float, seconds: int = 3, rate: int = 20, **more: Any) -> list[Any]:
    """The reports of an agent that began so late."""
    late_ns = round(late_s * NS)
    return [
        report(
            agent,
            number,
            [1_000_000] * rate,
            before=rate * (number - 1),
            elapsed_ns=number * NS,
            late_ns=late_ns,
            started_at_ns=1 + late_ns,
            **more,
        )
        for number in range(1, seconds + 1)
    ]


def merged_of(*reports: list[Any]) -> MergedReports:
    merged = MergedReports([each[0].agent for each in reports])
    for series in reports:
        for one in series:
            merged.add(one)
    return merged


def test_an_agent_that_starts_late_makes_neither_rates_nor_seconds_wrong() -> None:
    """Two agents with 20/s each and 3.4 s between them never did 40/s, and it took 6.4 s."""
    merged = merged_of(late("a:1", 0.0), late("b:1", 3.4))
    found = result(merged, {"a:1": DONE, "b:1": DONE}, skew_limit_s=0.5)
    assert found.duration_s == pytest.approx(6.4)
    assert found.rate == pytest.approx(120 / 6.4)
    assert max(each.operations for each in found.seconds) == 20
    assert [each.late_ms for each in found.agents] == [0.0, 3_400.0]


def test_a_result_is_degraded_with_a_reason_if_agents_start_further_apart_than_the_skew_limit() -> None:
    finals: dict[str, Status | None] = {"a:1": DONE, "b:1": DONE}
    within = result(merged_of(late("a:1", 0.0), late("b:1", 0.4)), finals, skew_limit_s=0.5)
    assert (within.verdict, within.warnings) == (Verdict.COMPLETE, ())
    beyond = result(merged_of(late("a:1", 0.0), late("b:1", 3.4)), finals, skew_limit_s=0.5)
    assert beyond.verdict is Verdict.DEGRADED
    assert beyond.sentence == (
        "All agents completed, but they began 3.4 s apart, "
        "and skew-limit is 500 ms (give them a longer lead)."
    )
    assert beyond.warnings == ()
    failed = result(
        merged_of(late("a:1", 0.0), late("b:1", 3.4)), {"a:1": DONE, "b:1": LOST}, skew_limit_s=0.5
    )
    assert failed.warnings[0].startswith("They began 3.4 s apart")
    shown = page(beyond)
    assert "DEGRADED" in shown
    assert "+3,400" in shown or "+3400" in shown, "how late each was"


def test_a_single_agent_that_is_late_is_measured_from_its_own_start() -> None:
    found = result(merged_of(late("a:1", 3.0)), {"a:1": DONE})
    assert found.verdict is Verdict.COMPLETE
    assert found.rate == pytest.approx(20.0)


def test_the_totals_of_a_partial_result_leave_out_the_operations_of_lost_agents() -> None:
    """A fourth agent was lost after 10 of its operations: they are its own, and not of the result."""
    merged = merged_of(late("a:1", 0.0), late("b:1", 0.0), late("lost:1", 0.0, seconds=1, rate=10))
    finals: dict[str, Status | None] = {"a:1": DONE, "b:1": DONE, "lost:1": LOST}
    found = result(merged, finals, policy=Policy.MAJORITY)
    assert (found.verdict, found.operations, found.latencies.count) == (Verdict.PARTIAL, 120, 120)
    assert found.rate == pytest.approx(40.0)
    assert [each.operations for each in found.seconds] == [40, 40, 40]
    assert [each.operations for each in found.agents] == [60, 60, 10]
    assert [each.left_out for each in found.agents] == [False, False, True]
    rows = list(csv.DictReader(io.StringIO(files_of(found, [])["seconds.csv"].decode())))
    assert [row["agents"] for row in rows] == ["2", "2", "2"]


def test_a_lost_agent_has_a_status_in_the_result() -> None:
    merged = merged_of(late("a:1", 0.0), late("lost:1", 0.0, seconds=1))
    found = result(merged, {"a:1": DONE, "lost:1": LOST}, policy=Policy.BEST_EFFORT)
    saved = json.loads(files_of(found, [])["result.json"])
    assert [each["status"] for each in saved["agents"]] == ["COMPLETED", "LOST"]


def test_latencies_from_an_unreadable_histogram_are_null_and_not_zero() -> None:
    merged = merged_of(late("a:1", 0.0, histogram=b"damaged"))
    found = result(merged, {"a:1": DONE})
    assert found.verdict is Verdict.DEGRADED
    assert "a:1" in found.sentence
    assert "latencies" in found.sentence
    saved = json.loads(files_of(found, [])["result.json"])
    assert saved["latencies"] == {
        "count": 0, "mean_ms": None, "p50_ms": None, "p90_ms": None, "p99_ms": None, "p999_ms": None,
        "max_ms": None,
    }  # fmt: skip
    assert saved["operations"] == 60
    assert "—" in page(found)
    assert (
        "0 ms" not in progress_of(WorkloadSpec(kind="sleep"), merged, {"a:1": Happened.RUNNING}, 3.0).sentence
    )


def test_operations_that_never_began_are_counted_and_shown_everywhere() -> None:
    merged = merged_of(late("a:1", 0.0, backlog=80), late("b:1", 0.0, backlog=0))
    live = progress_of(WorkloadSpec(kind="sleep"), merged, dict.fromkeys(merged.parts, Happened.RUNNING), 3.0)
    assert live.backlog == 80
    assert "80 waiting to begin" in live.sentence
    found = result(merged, {"a:1": DONE, "b:1": DONE})
    assert (found.verdict, found.dropped) == (Verdict.COMPLETE, 80)
    assert [each.dropped for each in found.agents] == [80, 0]
    assert found.warnings == (
        "80 of 200 operations that were due never began: raise concurrency, or lower the rate.",
    )
    assert "never began" in page(found)


def test_live_progress_names_a_silent_agent_and_does_not_count_it_as_running() -> None:
    merged = merged_of(late("a:1", 0.0, seconds=6), late("b:1", 0.0, seconds=2))
    states = dict.fromkeys(merged.parts, Happened.RUNNING)
    live = progress_of(WorkloadSpec(kind="sleep"), merged, states, 6.0, {"b:1": 4.2})
    assert (live.running, live.agents, live.rate) == (1, 2, 20.0)
    assert live.sentence.endswith("1 of 2 agents running · b:1 silent for 4 s")
    both = progress_of(WorkloadSpec(kind="sleep"), merged, states, 9.0, {"a:1": 3.0, "b:1": 7.0})
    assert (both.running, both.rate, both.latencies.p99_ms) == (0, 0.0, None)


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (None, "—"),
        (0.0, "0 ms"),
        (0.0000123, "12 ns"),
        (0.0123, "0.0123 ms"),
        (12.345, "12.3 ms"),
        (999.4, "999 ms"),
        (999.9, "1.0 s"),
        (3_370.0, "3.4 s"),
        (123_456.0, "123 s"),
        (3_600_000.0, "3,600 s"),
        (-3_370.0, "-3.4 s"),
    ],
)
def test_durations_are_shown_in_a_unit_that_fits(ms: float | None, words: str) -> None:
    assert took(ms) == words


def test_a_column_in_milliseconds_has_no_exponents() -> None:
    assert [in_ms(each) for each in (None, 0.123, 12.34, 3_370.4, 123_456.0)] == [
        "", "0.123", "12.3", "3370", "123456",
    ]  # fmt: skip


def test_each_threshold_is_evaluated_and_a_missed_one_is_in_the_report_and_the_exit_code() -> None:
    limits = {"p99_ms": 0.5, "rate": 10.0, "error_share": 0.0}
    merged = merged_of(late("a:1", 0.0))
    found = result(merged, {"a:1": DONE}, thresholds=limits)
    assert [(each.name, each.passed) for each in found.thresholds] == [
        ("p99_ms", False),
        ("rate", True),
        ("error_share", True),
    ]
    assert [each.name for each in found.missed] == ["p99_ms"]
    assert "p99_ms is 1" in page(found)
    nothing = result(MergedReports(["a:1"]), {"a:1": LOST}, thresholds=limits)
    assert not any(each.passed for each in nothing.thresholds)
    view = JobView(
        id="j_1", state=job.COMPLETED, version=1, task=TASK, queue="q", created_at=NOW, updated_at=NOW
    )
    assert (exit_code(view, found), exit_code(view, result(merged, {"a:1": DONE}))) == (1, 0)
