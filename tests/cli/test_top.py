"""`interlock top`: one snapshot for programs and pipes, and a live screen on a terminal."""

from __future__ import annotations

import json
import os
import pty
import signal
from typing import Any

import pytest
from tests.cli.shop import RunCli, Shop
from tests.programs import Program
from tests.waiting import PROGRAM_S

from interlock.cli import top
from interlock.cli.output import Sheet
from interlock.wire.figures import LiveNumbers
from interlock.wire.workers import WorkerSpec


async def registered(port: Any) -> None:
    await port.services.workers.register(WorkerSpec(name="web-1", queues=("default",), capacity=4))


@pytest.fixture
def busy(shop: Shop) -> dict[str, str]:
    """A worker, a job that runs, and one that waits in another queue."""
    shop.do(registered)
    running = shop.submit()
    shop.take(running)
    return {"running": running, "waiting": shop.submit(queue="mail")}


def test_a_program_gets_numbers_problems_queues_workers_and_running_jobs(
    cli: RunCli, busy: dict[str, str]
) -> None:
    seen = json.loads(cli("top", "--json").stdout)
    assert (seen["numbers"]["pending"], seen["numbers"]["running"]) == (1, 1)
    assert [each["id"] for each in seen["jobs"]] == [busy["running"]]
    assert [each["name"] for each in seen["workers"]] == ["web-1"]
    assert {each["name"] for each in seen["queues"]} == {"default", "mail"}
    assert [each["code"] for each in seen["findings"]] == ["no_worker"]


def test_top_in_a_pipe_prints_one_snapshot_whose_lines_begin_with_their_type(
    cli: RunCli, busy: dict[str, str]
) -> None:
    rows = [line.split("\t") for line in cli("top").stdout.splitlines()]
    assert rows[0] == ["live", "1", "1", "1", "4", "0"]
    assert [row[0] for row in rows[1:]] == ["finding", "queue", "queue", "worker", "job"]
    assert rows[-1][1] == busy["running"]


def test_a_low_terminal_shortens_the_longest_table_first_and_shows_the_hidden_count() -> None:
    short = Sheet("queue", "", ("name",), [(f"q{number}",) for number in range(4)])
    long = Sheet("job", "", ("id",), [(f"j{number}",) for number in range(50)])
    shown = top.fit([short, long], height=20)
    assert [len(sheet.rows) for sheet in shown] == [4, 10]
    assert [sheet.title for sheet in shown] == ["", "… 40 more not shown"]
    tiny = top.fit([short, long], height=2)
    assert [len(sheet.rows) for sheet in tiny] == [3, 3]
    assert top.fit([], height=2) == []


def test_numbers_that_were_not_counted_to_the_end_or_may_not_be_seen_are_shown_so() -> None:
    assert top.summary(LiveNumbers(pending=10_000, running=3, capped=True)) == "10,000+ pending   3+ running"
    seen = LiveNumbers(pending=0, running=1, workers=2, slots=8, busy=1)
    assert top.summary(seen) == "0 pending   1 running   2 workers, 1 of 8 slots busy"


def test_a_terminal_is_kept_up_to_date_until_ctrl_c(shop: Shop, busy: dict[str, str]) -> None:
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "140", "LINES": "40"}
    with Program("top", "--every", "0.5", environment=env, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        _shown(ours, busy["running"])
        later = shop.submit()
        shop.take(later)
        _shown(ours, later)
        process.send_signal(signal.SIGINT)
        while _read(ours):
            pass
        assert process.wait(timeout=PROGRAM_S) == 0
    os.close(ours)


def _shown(terminal: int, text: str) -> None:
    """Read until a text is on the screen."""
    written = ""
    while text not in written:
        written += os.read(terminal, 65_536).decode(errors="replace")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # the other side is closed
        return b""
