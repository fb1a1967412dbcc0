"""A run on a terminal: the graph stays up to date, failures stand above it, and what waits is named."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import msgspec
from rich.console import Console

from interlock.cli.run_live import LiveGraph
from interlock.cli.run_watching import changes_between
from interlock.wire.jobs import FailureView
from interlock.wire.runs import RunJobView, RunView

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


async def clock() -> datetime:
    return NOW


def job(name: str, state: str, *needs: str, error: str = "") -> RunJobView:
    failure = FailureView(failure_class="user", error=error) if error else None
    return RunJobView(name=name, job_id="j_1", state=state, needs=needs, failure=failure)


def run(*jobs: RunJobView, state: str = "RUNNING") -> RunView:
    return RunView(id="r_1", state=state, version=1, workflow="ci", created_at=NOW, updated_at=NOW, jobs=jobs)


async def test_the_graph_is_drawn_anew_and_what_failed_is_written_above_it() -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=90, color_system=None)
    before = run(job("lint", "PENDING"), job("test", "WAITING", "lint"))
    after = run(job("lint", "FAILED", error="two faults"), job("test", "CANCELED", "lint"))
    with LiveGraph(clock, 90, console) as screen:
        await screen.show(before, list(changes_between(None, before)))
        first = written.getvalue()
        await screen.show(after, list(changes_between(before, after)))
    assert "○ lint ─── ◌ test" in first
    assert "waiting for a runner: lint" in first
    rest = written.getvalue().removeprefix(first)
    assert rest.index("lint FAILED: two faults") < rest.index("✗ lint ─── ⊘ test")
    last = rest.rpartition("ci  r_1")[2]
    assert "waiting for a runner" not in last


def test_what_has_changed_between_two_looks() -> None:
    before = run(job("lint", "RUNNING"), job("test", "WAITING", "lint"), state="QUEUED")
    after = run(job("lint", "COMPLETED"), job("test", "WAITING", "lint"))
    told = [(change.what, change.before, change.after) for change in changes_between(before, after)]
    assert told == [("lint", "RUNNING", "COMPLETED"), ("", "QUEUED", "RUNNING")]
    assert not list(changes_between(after, msgspec.structs.replace(after, version=2)))
