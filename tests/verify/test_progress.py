"""Whoever reads the log of a long verification sees that it goes on."""

from __future__ import annotations

import pytest

from interlock_verification import report


def test_progress_is_printed_to_stderr_at_intervals_when_the_output_is_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with report.bar("states", 5_000) as watch:
        watch("race", 1_000, 0)
        monkeypatch.setattr(report, "TELL_EVERY_S", 0.0)
        watch("crash", 234, 0)

    captured = capsys.readouterr()
    assert captured.err == "1,234 of 5,000 states (crash)\n"
    assert captured.out == ""


def test_progress_without_a_known_total_prints_only_the_sum(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "TELL_EVERY_S", 0.0)
    with report.bar("mutants", None) as watch:
        watch("lease", 7, 0)

    assert capsys.readouterr().err == "7 mutants (lease)\n"
