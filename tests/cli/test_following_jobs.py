"""`interlock job watch|wait|logs --follow`, `submit --wait`: live, with exit codes that mean something."""

from __future__ import annotations

import json
import os
import pty
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pytest
from tests.cli.shop import RunCli, Shop
from tests.programs import Program
from tests.waiting import PROGRAM_S

COMPLETED, FAILED, CANCELED, NOT_IN_TIME = 0, 3, 4, 5


@contextmanager
def running(process: Program) -> Iterator[tuple[Program, IO[str]]]:
    """A process whose output is read while it runs, and which is gone afterwards."""
    assert process.stdout is not None
    try:
        yield process, process.stdout
    finally:
        process.kill()
        process.communicate(timeout=PROGRAM_S)


def line_with(output: IO[str], words: str) -> str:
    """The next line that has these words in it; reading is how the test waits for it."""
    for line in output:
        if words in line:
            return line
    raise AssertionError(f"nothing said {words!r}")


def test_watching_in_a_pipe_prints_each_transition_as_it_happens(shop: Shop) -> None:
    job_id = shop.submit()
    with running(shop.start("job", "watch", job_id)) as (process, output):
        assert "validate\tSUBMITTED\tPENDING" in line_with(output, "validate")
        shop.take(job_id)
        assert line_with(output, "allocate_resources").split("\t")[1:5] == [
            job_id, "job", "allocate_resources", "PENDING",
        ]  # fmt: skip
        shop.complete(job_id)
        assert "RUNNING\tCOMPLETED" in line_with(output, "success")
        assert process.wait(timeout=PROGRAM_S) == COMPLETED


def test_watching_in_json_is_a_line_for_each_step_and_then_the_job(shop: Shop) -> None:
    job_id = shop.submit()
    with running(shop.start("job", "watch", job_id, "--json")) as (process, output):
        first = json.loads(line_with(output, "validate"))
        assert (first["step"]["job_id"], first["step"]["target"]) == (job_id, "PENDING")
        shop.take(job_id)
        shop.fail(job_id)
        last = json.loads(line_with(output, '{"job"'))
        assert last["job"]["state"] == "FAILED"
        assert process.wait(timeout=PROGRAM_S) == FAILED


def test_watching_an_ended_job_prints_its_history_and_exits(cli: RunCli, shop: Shop) -> None:
    job_id = shop.failed()
    answer = cli("job", "watch", job_id)
    assert answer.returncode == FAILED
    steps = [line.split("\t")[2:6] for line in answer.stdout.splitlines()]
    assert (steps[0], steps[-1]) == (
        ["job", "validate", "SUBMITTED", "PENDING"],
        ["job", "error", "RUNNING", "FAILED"],
    )


def test_ctrl_c_stops_watching_and_reports_that_the_job_continues(shop: Shop) -> None:
    job_id = shop.submit()
    shop.take(job_id)
    with running(shop.start("job", "watch", job_id)) as (process, output):
        line_with(output, "acknowledged")
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=PROGRAM_S)
        assert process.returncode == 130
        assert stderr == "Stopped watching; the jobs continue.\n"
    assert shop.job(job_id).state == "RUNNING"


def test_job_watch_shows_progress_and_the_outcome_on_a_terminal(shop: Shop) -> None:
    job_id = shop.submit()
    shop.take(job_id)
    shop.report_progress(job_id, 1, 4, "packing")
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "140", "LINES": "40"}
    with Program("job", "watch", job_id, environment=env, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = ""
        while "packing" not in shown:
            shown += os.read(ours, 65536).decode(errors="replace")
        shop.complete(job_id)
        while more := _read(ours):
            shown += more
        assert process.wait(timeout=PROGRAM_S) == COMPLETED
    os.close(ours)
    assert "25%" in shown
    assert "\x1b[" in shown
    assert "COMPLETED" in shown


def _read(descriptor: int) -> str:
    try:
        return os.read(descriptor, 65536).decode(errors="replace")
    except OSError:  # how Linux says that the other side is closed
        return ""


# Waiting


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        (["completed"], COMPLETED),
        (["failed"], FAILED),
        (["canceled"], CANCELED),
        (["completed", "canceled", "failed"], FAILED),
        (["completed", "canceled"], CANCELED),
    ],
)
def test_the_exit_code_is_that_of_the_worst_outcome(
    cli: RunCli, shop: Shop, outcomes: list[str], code: int
) -> None:
    ids = [getattr(shop, outcome)() for outcome in outcomes]
    answer = cli("job", "wait", *ids)
    assert answer.returncode == code
    assert [line.split("\t")[:2] for line in answer.stdout.splitlines()] == [
        [job_id, outcome.upper()] for job_id, outcome in zip(ids, outcomes, strict=True)
    ]


def test_waiting_ends_when_the_last_job_has(shop: Shop) -> None:
    first, second = shop.submit(), shop.submit()
    shop.take(first, second)
    with running(shop.start("job", "wait", first, second)) as (process, output):
        shop.complete(first)
        assert line_with(output, first).split()[1] == "COMPLETED"
        shop.complete(second)
        assert line_with(output, second).split()[1] == "COMPLETED"
        assert process.wait(timeout=PROGRAM_S) == COMPLETED


def test_waiting_for_too_long_is_a_code_of_its_own(cli: RunCli, shop: Shop) -> None:
    job_id, done = shop.submit(), shop.submit(queue="other")
    shop.do(lambda port: port.services.jobs.cancel(done))
    answer = cli("job", "wait", job_id, done, "--timeout", "0.2s")
    assert answer.returncode == NOT_IN_TIME
    assert answer.stdout.startswith(f"{done}\tCANCELED")
    assert answer.stderr.splitlines()[-1] == f"Not ended in time: {job_id}."
    assert shop.job(job_id).state == "PENDING"


def test_wait_reports_an_ended_job_even_with_a_near_zero_timeout(cli: RunCli, shop: Shop) -> None:
    done, living = shop.canceled(), shop.submit()
    answer = cli("job", "wait", done, "--timeout", "0.000001s")
    assert (answer.returncode, answer.stderr) == (CANCELED, "")
    assert answer.stdout.startswith(f"{done}\tCANCELED")
    answer = cli("job", "wait", done, living, "--timeout", "0.000001s")
    assert answer.returncode == NOT_IN_TIME
    assert answer.stderr.splitlines()[-1] == f"Not ended in time: {living}."


def test_a_filter_is_waited_for_like_a_list(cli: RunCli, shop: Shop) -> None:
    shop.completed(queue="ci")
    shop.failed(queue="ci")
    shop.submit()
    assert cli("job", "wait", "queue:ci").returncode == FAILED
    nobody = cli("job", "wait", "queue:nowhere")
    assert (nobody.returncode, nobody.stderr) == (0, "No job matches.\n")


def test_job_wait_enforces_deadlines_when_no_worker_runs(cli: RunCli, shop: Shop) -> None:
    (shop.folder / "interlock.toml").write_text("[durations]\nsweep_every_s = 0.1\n", encoding="utf-8")
    job_id = shop.submit(timeout_s=20.0)
    shop.take(job_id)  # by a runner that is never heard of again
    shop.later(21.0)
    answer = cli("job", "wait", job_id)
    assert answer.returncode == FAILED
    assert "timeout" in answer.stdout


# Submitting and waiting


def test_submit_and_wait_in_json_is_the_job_as_it_ended(shop: Shop) -> None:
    with running(shop.start("submit", "shop_tasks:add", "x=3", "--wait", "--json")) as (process, output):
        job_id = shop.next_job()
        shop.take(job_id)
        shop.complete(job_id, 4)
        view = json.load(output)
        assert (view["id"], view["state"], view["result"]) == (job_id, "COMPLETED", 4)
        assert process.wait(timeout=PROGRAM_S) == COMPLETED


def test_submit_and_wait_for_too_long(cli: RunCli, shop: Shop) -> None:
    answer = cli("submit", "shop_tasks:add", "x=3", "--wait", "--wait-timeout", "0.2s")
    assert answer.returncode == NOT_IN_TIME
    assert "Not ended in time" in answer.stderr


# Logs


def test_following_logs_shows_lines_as_they_come_and_ends_with_the_job(shop: Shop) -> None:
    job_id = shop.submit()
    shop.take(job_id)
    shop.write(job_id, "one")
    with running(shop.start("job", "logs", job_id, "--follow", "--plain")) as (process, output):
        assert output.readline() == "one\n"
        shop.write(job_id, "two")
        assert output.readline() == "two\n"
        shop.complete(job_id)
        assert output.read() == ""
        assert process.wait(timeout=PROGRAM_S) == 0
