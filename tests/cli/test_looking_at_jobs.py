"""`interlock job list|show|history|explain|logs` and `queue list`: what is shown, to whom, and how."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime

import pytest
from tests.cli.shop import RUNNER, RunCli, Shop
from tests.programs import Program
from tests.waiting import PROGRAM_S

from interlock.remote import search
from interlock.wire import filters
from interlock.wire.runner import Complete, Succeeded


def column(answer: str, number: int) -> list[str]:
    return [line.split("\t")[number] for line in answer.splitlines()]


def on_a_terminal(shop: Shop, *arguments: str, **environment: str) -> str:
    """What the program writes when its output is a terminal."""
    return _written(shop, arguments, environment, keyboard=False)


def at_a_keyboard(shop: Shop, *arguments: str, **environment: str) -> str:
    """What the program writes when its output and its input are a terminal."""
    return _written(shop, arguments, environment, keyboard=True)


def _written(shop: Shop, arguments: Sequence[str], environment: Mapping[str, str], *, keyboard: bool) -> str:
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "160", **environment}
    stdin = theirs if keyboard else subprocess.DEVNULL
    with Program(
        *arguments, folder=shop.folder, environment=env, stdin=stdin, stdout=theirs, stderr=theirs
    ) as it:
        os.close(theirs)
        written = b""
        while more := _read(ours):
            written += more
        it.wait(timeout=PROGRAM_S)
    os.close(ours)
    return written.decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # how Linux says that the other side is closed
        return b""


# Lists


def test_a_list_shows_the_newest_first_with_a_line_for_each(cli: RunCli, shop: Shop) -> None:
    done, waiting = shop.completed(), shop.submit("shop_tasks.send", queue="ci", description="for Ann")
    answer = cli("job", "list")
    assert answer.returncode == 0
    assert column(answer.stdout, 0) == [waiting, done]
    assert column(answer.stdout, 1) == ["PENDING", "COMPLETED"]
    cells = answer.stdout.splitlines()[0].split("\t")
    assert cells[2:4] == ["shop_tasks.send", "ci"]
    assert cells[-1] == "for Ann"
    assert datetime.fromisoformat(cells[4]).tzinfo is not None


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["state:failed"], {"failed"}),
        (["state:FAILED,canceled"], {"failed", "canceled"}),
        (["-state:completed"], {"failed", "canceled", "waiting"}),
        (["-state:completed,failed", "-state:cancelled"], {"waiting"}),
        (["queue:ci"], {"waiting", "failed"}),
        (["queue:ci", "state:failed"], {"failed"}),
        (["queue:ci,mail"], {"waiting", "failed", "canceled"}),
        (["label:gpu"], {"waiting"}),
        (["label:gpu,big"], {"waiting", "canceled"}),
        (["task:shop_tasks.send"], {"canceled"}),
        (["since:1h"], {"failed", "canceled", "waiting", "completed"}),
        (["until:1h"], set()),
    ],
)
def test_a_filter_chooses_among_them(cli: RunCli, shop: Shop, words: list[str], found: set[str]) -> None:
    jobs = {
        shop.completed(): "completed",
        shop.failed(queue="ci"): "failed",
        shop.canceled(task="shop_tasks.send", queue="mail", labels=("big",)): "canceled",
        shop.submit(queue="ci", labels=("gpu",)): "waiting",
    }
    answer = cli("job", "list", *words)
    assert answer.returncode == 0, answer.stderr
    assert {jobs[job_id] for job_id in column(answer.stdout, 0)} == found


def test_a_wrong_filter_is_a_wrong_question(cli: RunCli, shop: Shop) -> None:
    answer = cli("job", "list", "queue:ci", "sate:failed")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "in 'sate:failed', at character 10: there is no key 'sate', did you mean state." in answer.stderr


def test_a_wrong_option_is_still_a_wrong_option(cli: RunCli, shop: Shop) -> None:
    answer = cli("job", "list", "--limt", "3")
    assert answer.returncode == 2
    assert "--limt" in answer.stderr


def test_pages_follow_each_other_without_a_gap(cli: RunCli, shop: Shop) -> None:
    ids = shop.submit_many(7)
    seen: list[str] = []
    cursor = ""
    for size in (3, 3, 1):
        page = json.loads(cli("job", "list", "--limit", "3", "--cursor", cursor, "--json").stdout)
        assert len(page["jobs"]) == size
        seen += [job["id"] for job in page["jobs"]]
        cursor = page["cursor"]
    assert (cursor, sorted(seen)) == ("", sorted(ids))


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
def test_job_list_pages_through_a_filter_that_the_store_does_not_support(
    cli: RunCli, shop: Shop, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "PAGE", 4)
    wanted = []
    for number in range(10):
        task = "shop_tasks.send" if number % 3 else "shop_tasks.add"
        job_id = shop.submit(task)
        wanted += [job_id] if number % 3 else []
    seen: list[str] = []
    cursor = ""
    while True:
        words = ("job", "list", "task:shop_tasks.send", "--limit", str(limit), "--cursor", cursor, "--json")
        page = json.loads(cli(*words).stdout)
        seen += [job["id"] for job in page["jobs"]]
        if not (cursor := page["cursor"]):
            break
    assert seen == wanted[::-1]


def test_a_list_prints_a_cursor_when_there_are_more_jobs_and_all_lists_every_job(
    cli: RunCli, shop: Shop
) -> None:
    ids = shop.submit_many(60)
    answer = cli("job", "list")
    assert len(answer.stdout.splitlines()) == 50
    assert "There are more: --cursor " in answer.stderr
    everything = cli("job", "list", "--all")
    assert sorted(column(everything.stdout, 0)) == sorted(ids)
    assert "There are more" not in everything.stderr


def test_a_search_that_scans_too_many_jobs_stops_and_reports_a_cursor(
    cli: RunCli, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MAX_SCANNED", 20)
    monkeypatch.setattr(search, "PAGE", 10)
    rare = shop.submit("shop_tasks.send")
    shop.submit_many(40)
    answer = cli("job", "list", "task:shop_tasks.send")
    assert (answer.returncode, answer.stdout) == (0, "")
    assert "Stopped before" in answer.stderr
    cursor = answer.stderr.split("--cursor ")[1].strip()
    page = json.loads(cli("job", "list", "task:shop_tasks.send", "--cursor", cursor, "--json").stdout)
    assert page["stopped_early"]
    assert column(cli("job", "list", "task:shop_tasks.send", "--all").stdout, 0) == [rare]


def test_a_list_of_a_rare_queue_finds_its_jobs_or_reports_that_it_stopped_early(
    cli: RunCli, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    rare = shop.submit("shop_tasks.send", queue="rare")
    shop.submit_many(40)
    monkeypatch.setattr(filters, "LOOKED_AT", 10)
    assert column(cli("job", "list", "queue:rare").stdout, 0) == [rare]
    monkeypatch.setattr(search, "LOOKS", 2)
    answer = cli("job", "list", "queue:rare")
    assert (answer.returncode, answer.stdout) == (0, "")
    assert "Stopped before all jobs were searched" in answer.stderr
    assert "No job matches" not in answer.stderr
    cursor = answer.stderr.split("--cursor ")[1].strip()
    assert column(cli("job", "list", "queue:rare", "--cursor", cursor, "--all").stdout, 0) == [rare]


# One job


def test_a_job_is_shown_with_its_attempts_its_input_and_its_result(cli: RunCli, shop: Shop) -> None:
    job_id = shop.completed(description="for Ann", labels=("gpu",))
    rows = dict(
        line.split("\t")[1:3] for line in cli("job", "show", job_id).stdout.splitlines() if line[0] == "a"
    )
    assert (rows["state"], rows["labels"], rows["input"], rows["result"]) == (
        "COMPLETED",
        "gpu",
        '{"x":1}',
        "2",
    )
    shown = cli("job", "show", job_id).stdout
    assert f"attempt\t1.1\tSUCCEEDED\t{RUNNER}\t" in shown
    view = json.loads(cli("job", "show", job_id, "--json").stdout)
    assert (view["result"], view["attempts"][0]["state"]) == (2, "SUCCEEDED")


def test_a_canceled_job_is_shown_with_the_reason_that_was_given(cli: RunCli, shop: Shop) -> None:
    job_id = shop.submit()
    assert cli("job", "cancel", job_id, "--reason", "wrong branch").returncode == 0
    assert "about\tstop reason\tcancel: wrong branch" in cli("job", "show", job_id).stdout
    assert json.loads(cli("job", "show", job_id, "--json").stdout)["cancel_reason"] == "wrong branch"


@pytest.mark.parametrize("text", ["{0}", "j_{0}", "J_{0}", "{1}", "j_{1}"])
def test_a_job_may_be_named_by_the_beginning_of_its_id(cli: RunCli, shop: Shop, text: str) -> None:
    job_id = shop.submit()
    answer = cli("job", "show", text.format(job_id[2:], job_id[2:10]), "--json")
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["id"] == job_id


def test_a_beginning_that_several_jobs_have_lists_them(cli: RunCli, shop: Shop) -> None:
    ids = shop.submit_many(3)
    common = ids[0][:8]
    answer = cli("job", "show", common)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert f"3 jobs match {common}." in answer.stderr
    assert all(job_id in answer.stderr for job_id in ids)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("j_0123456789ab", "There is no job j_0123456789ab."),
        ("j_0123", "There is no job whose id starts with j_0123."),
        ("nobody", "'nobody' is not the id of a job, which is j_ and 12 hex digits."),
    ],
)
@pytest.mark.parametrize(
    "command", ["show", "history", "explain", "logs", "watch", "wait", "cancel", "retry"]
)
def test_a_job_that_is_not_there_is_reported_alike_everywhere(
    cli: RunCli, shop: Shop, command: str, name: str, says: str
) -> None:
    answer = cli("job", command, name)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert says in answer.stderr


# History


def test_a_history_shows_every_step_with_its_owner_and_actor(cli: RunCli, shop: Shop) -> None:
    job_id = cli("submit", "shop_tasks:add", "x=1").stdout.strip()
    shop.take(job_id)
    shop.complete(job_id)
    steps = [line.split("\t") for line in cli("job", "history", job_id).stdout.splitlines()]
    assert steps[0][1:6] == ["job", "validate", "SUBMITTED", "PENDING", "orchestrator"]
    assert "(command line)" in steps[0][6]
    assert steps[-1][1:7] == ["job", "success", "RUNNING", "COMPLETED", "orchestrator", RUNNER]
    assert ["attempt 1.1", "grant", "QUEUED", "LEASED"] in [step[1:5] for step in steps]


def test_a_refusal_is_marked_in_the_history(cli: RunCli, shop: Shop) -> None:
    job_id = shop.completed()
    late = Complete(token=shop.grants[job_id].token, runner_id=RUNNER, sequence=99, outcome=Succeeded(b"3"))  # type: ignore[arg-type]
    shop.do(lambda port: port.report([late]))
    last = cli("job", "history", job_id).stdout.splitlines()[-1].split("\t")
    assert (last[2], last[6]) == ("refused", RUNNER)
    assert "Another completion was accepted before" in last[7]
    entry = json.loads(cli("job", "history", job_id, "--json").stdout)[-1]
    assert entry["refused"] is True


# What it waits for


def test_explain_shows_what_a_job_waits_for_and_which_role_acts_next(cli: RunCli, shop: Shop) -> None:
    job_id = shop.submit(queue="ci", labels=("gpu",))
    answer = cli("job", "explain", job_id)
    first, *rows = answer.stdout.splitlines()
    assert first == (
        f"{job_id} is PENDING. It waits for a worker of the queue ci that has gpu. "
        "No live worker takes the queue ci."
    )
    assert rows[-1] == "→ interlock worker start MODULE --queue ci --label gpu"
    assert rows[0].split("\t")[:2] == [f"job {job_id}", "PENDING"]
    explanation = json.loads(cli("job", "explain", job_id, "--json").stdout)
    assert explanation["lines"][0]["turn"] == "orchestrator"


def test_a_list_warns_about_a_pending_job_that_no_live_worker_takes(cli: RunCli, shop: Shop) -> None:
    shop.completed()
    waits, also = shop.submit(), shop.submit()
    answer = cli("job", "list")
    assert len(answer.stdout.splitlines()) == 3
    (line,) = answer.stderr.splitlines()
    assert line in {
        f"Waiting ({job_id}): No live worker takes the queue default." for job_id in (waits, also)
    }
    assert "No live worker" not in cli("job", "list", "state:completed").stderr


def test_job_wait_warns_that_no_live_worker_takes_the_job(cli: RunCli, shop: Shop) -> None:
    job_id = shop.submit(queue="ci")
    answer = cli("job", "wait", job_id, "--timeout", "1s")
    assert answer.returncode == 5
    assert answer.stderr.splitlines() == [
        f"Waiting ({job_id}): No live worker takes the queue ci. → interlock worker start MODULE --queue ci",
        f"Not ended in time: {job_id}.",
    ]


def test_explain_shows_the_runner_and_the_deadline_of_the_lease_of_a_running_job(
    cli: RunCli, shop: Shop
) -> None:
    job_id = shop.submit()
    shop.take(job_id)
    rows = [line.split("\t") for line in cli("job", "explain", job_id).stdout.splitlines()[1:]]
    lease = next(row for row in rows if row[0].startswith("lease"))
    assert RUNNER in lease[2]
    assert datetime.fromisoformat(lease[4]).tzinfo is not None


def test_explain_of_a_failed_job_shows_the_error_and_the_retry_command(cli: RunCli, shop: Shop) -> None:
    job_id = shop.failed()
    answer = cli("job", "explain", job_id)
    assert "user: ValueError: out of stock" in answer.stdout
    assert answer.stdout.endswith(f"→ interlock job retry {job_id}\n")


# Logs


def test_job_logs_prints_the_lines_of_an_attempt_as_plain_text_table_and_json(
    cli: RunCli, shop: Shop
) -> None:
    job_id = shop.submit()
    shop.take(job_id)
    shop.write(job_id, "one\ttab", "two")
    shop.write(job_id, "three")
    assert cli("job", "logs", job_id, "--plain").stdout == "one\ttab\ntwo\nthree\n"
    lines = cli("job", "logs", job_id).stdout.splitlines()
    assert [line.split("\t", 3)[1:] for line in lines][1] == ["1.1", "info", "two"]
    entries = [json.loads(line) for line in cli("job", "logs", job_id, "--json").stdout.splitlines()]
    assert [entry["text"] for entry in entries] == ["one\ttab", "two", "three"]


def test_logs_cannot_do_anything_to_a_terminal(cli: RunCli, shop: Shop) -> None:
    job_id = shop.submit()
    shop.take(job_id)
    shop.write(job_id, "\x1b]52;c;eA==\x07\x1b[31mred\x1b[2J")
    assert cli("job", "logs", job_id, "--plain").stdout == "␛]52;c;eA==␇red␛[2J\n"
    assert "␛]52;c;eA==␇red␛[2J" in cli("job", "logs", job_id).stdout
    assert json.loads(cli("job", "logs", job_id, "--json").stdout)["text"].startswith("\x1b]52")


def test_logs_can_be_those_of_one_attempt(cli: RunCli, shop: Shop) -> None:
    job_id = shop.submit()
    shop.take(job_id)
    shop.write(job_id, "one")
    assert cli("job", "logs", job_id, "--attempt", "1.1", "--plain").stdout == "one\n"
    assert cli("job", "logs", job_id, "--attempt", "2", "--plain").stdout == ""
    wrong = cli("job", "logs", job_id, "--attempt", "first")
    assert (wrong.returncode, "'first' is not an attempt" in wrong.stderr) == (2, True)


def test_logs_of_a_silent_job_are_empty(cli: RunCli, shop: Shop) -> None:
    answer = cli("job", "logs", shop.submit())
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")


# Queues


def test_queue_list_shows_the_pending_and_running_jobs_of_each_queue(cli: RunCli, shop: Shop) -> None:
    running = shop.submit(queue="ci")
    shop.take(running)
    shop.completed(queue="mail")
    shop.submit(queue="ci")
    rows = [line.split("\t") for line in cli("queue", "list").stdout.splitlines()]
    assert [row[:3] for row in rows] == [["ci", "1", "1"]]
    assert json.loads(cli("queue", "list", "--json").stdout)[0]["running"] == 1


# On a terminal


def test_a_terminal_gets_tables_and_humane_times(shop: Shop) -> None:
    job_id = shop.completed()
    listed = on_a_terminal(shop, "job", "list")
    assert "\x1b[" in listed
    assert "submitted" in listed
    assert re.search(r"(now|\d+(\.\d)? (s|min) ago)", listed)
    for command in ("show", "history"):
        shown = on_a_terminal(shop, "job", command, job_id, NO_COLOR="1")
        assert "\x1b" not in shown
        assert "COMPLETED" in shown


def test_no_command_about_jobs_makes_help_slow(shop: Shop) -> None:
    script = """
import sys
from interlock.cli.main import main
for words in (["--help"], ["submit", "--help"], ["job", "list", "--help"], ["worker", "start", "--help"]):
    main(words)
heavy = {"rich", "msgspec", "httpx2", "asyncio", "interlock.lifecycles", "interlock.worker"}
print(sorted(heavy & set(sys.modules)))
"""
    answer = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        check=True,
        encoding="utf-8",
        timeout=PROGRAM_S,
    )
    assert answer.stdout.splitlines()[-1] == "[]"
