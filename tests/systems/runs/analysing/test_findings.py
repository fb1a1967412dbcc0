"""Why a job has failed: what its exit code, its output and its past say, and how sure one can be."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.systems.orchestrator.failures import FailureClass, FailureRule
from interlock.systems.runs.failure_analysis import (
    SIGNS,
    evidence_in,
    finding_of,
    signal_of,
    signs_of,
)
from interlock.systems.runs.job_history import HistoryBody, JobIdentity, JobOutcome
from interlock.wire.jobs import FailureView
from interlock.wire.runs import JobFinding, RunJobView

HERE = JobIdentity("acme/shop", "ci", "test")


def failure(error: str = "", *, taken_for: str = "user", **fields: Any) -> FailureView:
    return FailureView(failure_class=taken_for, error=error, **fields)


def finding(of: FailureView, history: HistoryBody | None = None, **options: Any) -> JobFinding:
    job = RunJobView(name="test", job_id="j_1", state="FAILED", failure=of)
    return finding_of(job, "sha-1", history, **options)


@pytest.mark.parametrize(
    ("of", "failure_class", "kind", "words"),
    [
        (failure("exit code 137", exit_code=137, taken_for="infra"), "infra", "signal", "memory"),
        (failure("killed", exit_code=-9, taken_for="infra"), "infra", "signal", "memory"),
        (failure("crashed", exit_code=139), "user", "signal", "crashed"),
        (failure("exit code 124", exit_code=124), "timeout", "exit_code", "timeout(1)"),
        (failure("exit code 127", exit_code=127, taken_for="tooling"), "tooling", "exit_code", "not found"),
        (failure("x", details="cp: No space left on device"), "infra", "output", "disk"),
        (failure("x", details="= 2 failed, 3 passed in 1s ="), "user", "output", "test"),
        (failure("x", details="FAILED tests/a.py::test_b - assert 1"), "user", "output", "test"),
        (failure("x", details="src/a.c:12:3: error: expected ';'"), "user", "output", "compile"),
        (failure("x", exception="builtins.MemoryError", taken_for="infra"), "infra", "exception", "memory"),
        (failure("x", details="curl: (6) Could not resolve host: a"), "infra", "output", "network"),
        (
            failure("x", details="toomanyrequests: slow", taken_for="tooling"),
            "tooling",
            "output",
            "many",
        ),
        (failure("lost its worker", taken_for="lost"), "lost", "record", "classified like that"),
        (failure("took too long", taken_for="timeout"), "timeout", "record", "classified like that"),
    ],
)
def test_a_failure_is_classified_by_its_exit_code_signal_output_or_exception(
    of: FailureView, failure_class: str, kind: str, words: str
) -> None:
    found = finding(of)
    assert found.failure_class == failure_class
    assert any(one.kind == kind and words in one.says for one in found.evidence)
    assert 0.5 <= found.confidence <= 1.0


def test_a_failure_without_signs_is_classified_as_user_with_low_confidence() -> None:
    found = finding(failure("it did not work", exit_code=1))
    assert (found.failure_class, found.confidence) == ("user", 0.3)
    assert [one.kind for one in found.evidence] == ["record"]


def test_signs_of_one_class_raise_the_confidence_and_signs_of_two_classes_lower_it() -> None:
    one = finding(failure("x", exit_code=137))
    two = finding(failure("Out of memory", exit_code=137))
    torn = finding(failure("FAILED a.py::b", exit_code=137))
    assert two.confidence > one.confidence > torn.confidence


def test_the_line_that_shows_a_sign_is_quoted_and_a_long_one_cut() -> None:
    long = "a" * 500
    (found, *_) = evidence_in(failure(details=f"before\n  disk: No space left on device\nafter {long}"))
    assert found.found == "disk: No space left on device"
    (found, *_) = evidence_in(failure(details=f"{long} No space left on device {long}"))
    assert found.found == "No space left on device"


def test_failure_rules_of_the_project_take_precedence_over_the_built_in_rules() -> None:
    own = FailureRule(failure_class=FailureClass.TOOLING, patterns=("license server",), exit_codes=(42,))
    signs = signs_of([own])
    for of in (failure("the license server is away"), failure("x", exit_code=42)):
        assert finding(of, signs=signs).failure_class == "tooling"
        assert finding(of).failure_class == "user"


def test_every_signal_of_the_table_exists_and_every_weight_leaves_doubt() -> None:
    known = {signal_of(-number) for number in range(1, 65)}
    for sign in SIGNS:
        assert set(sign.signals) <= known
        assert 0.0 < sign.weight < 1.0
        assert sign.exit_codes or sign.signals or sign.exceptions or sign.patterns
    assert (signal_of(None), signal_of(1), signal_of(137), signal_of(-15)) == ("", "", "SIGKILL", "SIGTERM")


def history(*ended: tuple[str, bool, bool]) -> HistoryBody:
    outcomes = [JobOutcome(sha, f"j_{n}", passed, failed) for n, (sha, passed, failed) in enumerate(ended)]
    return HistoryBody(named=HERE, ended=tuple(outcomes))


def test_a_job_that_passed_on_this_very_commit_is_most_likely_flaky() -> None:
    past = history(("sha-1", True, False), ("sha-1", False, True))
    found = finding(failure("something"), past)
    assert (found.failure_class, found.flaky) == ("flaky", True)
    assert "passed in j_0" in found.evidence[0].says
    assert "failed in j_1" in found.evidence[0].says


def test_a_job_that_was_flaky_elsewhere_is_suspected_but_not_convicted() -> None:
    past = history(("old", True, True), ("sha-1", False, True))
    found = finding(failure("FAILED a.py::b"), past)
    assert (found.failure_class, found.flaky) == ("user", True)
    assert any(one.kind == "history" for one in found.evidence)


def test_a_job_that_fails_on_every_commit_is_not_flaky() -> None:
    past = history(("sha-0", True, False), ("sha-1", False, True), ("sha-2", False, True))
    assert not finding(failure("x"), past).flaky
