"""Reports to tell."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from interlock.systems.runs.reports.report import RunReport, RunStatus
from interlock.wire.jobs import FailureView
from interlock.wire.runs import RunJobView, RunView, Source

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
SHA = "b" * 40


def run_view(**fields: Any) -> RunView:
    """A run about a commit."""
    given: dict[str, Any] = {
        "id": "r_0123456789ab",
        "state": "RUNNING",
        "version": 5,
        "workflow": "ci",
        "created_at": NOW,
        "updated_at": NOW,
        "source": Source(repository="acme/shop", ref="refs/heads/main", sha=SHA, event="push"),
        "tally": {"COMPLETED": 3, "FAILED": 1},
    }
    return RunView(**{**given, **fields})


def failed_run(number: int = 1) -> RunView:
    """A run of which some jobs have failed."""
    failure = FailureView(failure_class="user", error="assert 1 == 2")
    jobs = [
        RunJobView(name=f"test ({n})", job_id=f"j_{n:012x}", state="FAILED", failure=failure)
        for n in range(number)
    ]
    return run_view(state="FAILED", outcome="FAILED", jobs=tuple(jobs), completed_at=NOW, started_at=NOW)


def report(word: RunStatus = RunStatus.RUNNING, run: RunView | None = None) -> RunReport:
    """Something to tell."""
    return RunReport(
        run=run or run_view(), status=word, at=NOW, url="https://ci.example.org/runs/r_0123456789ab"
    )


async def now() -> datetime:
    """By the clock of whoever signs."""
    return datetime.now(UTC)
