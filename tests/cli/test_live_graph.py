"""A run on a terminal: the graph stays up to date, failures stand above it, and what waits is named."""

from __future__ import annotations

import io
import re
from datetime import UTC, datetime

import click
import msgspec
import pytest
from rich.console import Console

from interlock.cli.journal import JournalStep
from interlock.cli.live import LiveGraph, LiveTable
from interlock.cli.nouns.run_views import coloured, drawn
from interlock.cli.nouns.run_watch import changes_between
from interlock.cli.watch import News
from interlock.wire.jobs import FailureView, JobView
from interlock.wire.runs import RunJobView, RunView

OURS = {"\x1b[?25l", "\x1b[?25h", "\x1b[1A", "\x1b[2K"}
"""What rich writes to draw a graph anew."""
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


async def clock() -> datetime:
    return NOW


def job(name: str, state: str, *needs: str, error: str = "") -> RunJobView:
    failure = FailureView(failure_class="user", error=error) if error else None
    return RunJobView(name=name, job_id="j_1", state=state, needs=needs, failure=failure)


def run(*jobs: RunJobView, state: str = "RUNNING") -> RunView:
    return RunView(id="r_1", state=state, version=1, workflow="ci", created_at=NOW, updated_at=NOW, jobs=jobs)


async def test_the_live_graph_is_redrawn_and_failed_jobs_are_printed_above_it() -> None:
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


class Screen:
    """A terminal that knows what rich writes: texts, lines, and moving up and erasing."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.lines = [""]
        self.row = self.column = 0

    def feed(self, text: str) -> None:
        for found in re.finditer(r"\x1b\[(\??\d*)([A-Za-z])|([\r\n])|([^\x1b\r\n])", text):
            number, command, control, letter = found.groups()
            if command == "A":
                top = max(0, len(self.lines) - self.height)  # what has scrolled away cannot be reached
                self.row = max(top, self.row - int(number or 1))
            elif command == "K":
                self.lines[self.row] = ""
            elif control == "\r":
                self.column = 0
            elif control == "\n":
                self._next()
            elif letter is not None:
                self._put(letter)

    def _next(self) -> None:
        self.row, self.column = self.row + 1, 0
        if self.row == len(self.lines):
            self.lines.append("")

    def _put(self, letter: str) -> None:
        if self.column == self.width:
            self._next()
        line = self.lines[self.row].ljust(self.column)
        self.lines[self.row] = line[: self.column] + letter + line[self.column + 1 :]
        self.column += 1


@pytest.mark.parametrize("height", [4, 6, 9, 24])
@pytest.mark.parametrize("width", [30, 80])
async def test_no_half_of_an_earlier_graph_stays_on_the_terminal(width: int, height: int) -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=width, height=height, color_system=None)
    names = [f"test ({number})" for number in range(7)]
    before = run(job("lint", "RUNNING"), *(job(name, "PENDING") for name in names))
    broken = run(
        job("lint", "FAILED", error="two faults, " * 12), *(job(name, "RUNNING") for name in names[:4])
    )
    after = run(job("lint", "FAILED", error="two faults"), state="FAILED")
    with LiveGraph(clock, width, console) as screen:
        for earlier, later in ((None, before), (before, broken), (broken, after)):
            await screen.show(later, list(changes_between(earlier, later)))
    terminal = Screen(width, height)
    terminal.feed(written.getvalue())
    shown = "\n".join(terminal.lines)
    assert shown.count("ci  r_1") == 1, shown
    assert "test (" not in shown


async def test_nothing_that_a_job_has_written_moves_the_graph() -> None:
    """The error of a job is the end of its output, which may colour and move as it likes."""
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=80, height=24, color_system=None)
    odd = "te\x1b[2Ast"
    before = run(job("lint", "RUNNING"), job(odd, "PENDING"), job("docs", "WAITING", odd))
    after = run(job("lint", "FAILED", error="\x1b[3A\x1b[31mtwo\x9b2Jfaults\rover"), job(odd, "PENDING"))
    with LiveGraph(clock, 80, console) as screen:
        await screen.show(before, list(changes_between(None, before)))
        await screen.show(after, list(changes_between(before, after)))
    assert set(re.findall("\x1b\\[[^A-Za-z]*[A-Za-z]|\x9b", written.getvalue())) <= OURS
    terminal = Screen(80, 24)
    terminal.feed(written.getvalue())
    assert "\n".join(terminal.lines).count("ci  r_1") == 1
    assert any("lint FAILED: " in line for line in terminal.lines)


def test_a_printed_graph_has_no_colours_but_ours() -> None:
    odd = run(job("te\x1b[2Ast", "WAITING"), job("li\x9b31mnt", "RUNNING"))
    text = "\n".join(click.unstyle(coloured(line)) for line in drawn(odd, NOW, 80))
    assert re.findall("[\x1b\x9b]", text) == []


async def test_nothing_that_a_job_has_written_moves_the_table() -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=120, height=24, color_system=None)
    failure = FailureView(failure_class="user", error="\x1b[3A\x1b[31mtwo\nfaults")
    view = JobView(
        id="j_1",
        state="FAILED",
        version=2,
        task="t",
        queue="q",
        created_at=NOW,
        updated_at=NOW,
        failure=failure,
    )
    step = JournalStep(
        at=NOW,
        job_id="j_1",
        version=2,
        machine="job",
        event="fail",
        source="RUNNING",
        target="FAILED",
        reason="\x1b[2Jodd",
    )
    with LiveTable(clock, console) as screen:
        await screen.show(News([step], [view]))
    assert set(re.findall("\x1b\\[[^A-Za-z]*[A-Za-z]|\x9b", written.getvalue())) <= OURS


def test_changes_between_two_views_are_the_state_changes_of_the_jobs_and_the_run() -> None:
    before = run(job("lint", "RUNNING"), job("test", "WAITING", "lint"), state="QUEUED")
    after = run(job("lint", "COMPLETED"), job("test", "WAITING", "lint"))
    changes = [(change.what, change.before, change.after) for change in changes_between(before, after)]
    assert changes == [("lint", "RUNNING", "COMPLETED"), ("", "QUEUED", "RUNNING")]
    assert not list(changes_between(after, msgspec.structs.replace(after, version=2)))
