"""`interlock job cancel|retry`: one job, several, or all that a filter means, with a look beforehand."""

from __future__ import annotations

import json
import os
import pty

import pytest
from tests.cli.shop import RunCli, Shop
from tests.programs import Program
from tests.waiting import PROGRAM_S


def answered(shop: Shop, answer: str, *arguments: str) -> tuple[int, str]:
    """Run the program on a terminal, with somebody there who answers its question."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "NO_COLOR": "1", "COLUMNS": "160"}
    process = Program(
        *arguments, folder=shop.folder, environment=env, stdin=theirs, stdout=theirs, stderr=theirs
    )
    with process:
        os.close(theirs)
        shown = ""
        while "[y/N]" not in shown:
            shown += os.read(ours, 65536).decode()
        os.write(ours, f"{answer}\n".encode())
        while more := _read(ours):
            shown += more
        code = process.wait(timeout=PROGRAM_S)
    os.close(ours)
    return code, shown


def _read(descriptor: int) -> str:
    try:
        return os.read(descriptor, 65536).decode()
    except OSError:  # how Linux says that the other side is closed
        return ""


def test_a_job_that_waits_is_canceled_at_once(cli: RunCli, shop: Shop) -> None:
    job_id = shop.submit()
    answer = cli("job", "cancel", job_id, "--reason", "wrong branch")
    assert (answer.returncode, answer.stdout) == (0, f"{job_id}\tCANCELED\tstopped: cancel\n")
    assert "wrong branch" in cli("job", "history", job_id).stdout.splitlines()[-1]


def test_canceling_a_running_job_prints_that_the_job_is_stopping(cli: RunCli, shop: Shop) -> None:
    job_id = shop.submit()
    shop.take(job_id)
    answer = cli("job", "cancel", job_id)
    assert (answer.returncode, answer.stdout) == (0, f"{job_id}\tRUNNING\tstopping: cancel\n")
    shop.acknowledge_cancel(job_id)
    assert cli("job", "wait", job_id).returncode == 4


def test_the_children_of_a_stopped_job_hear_of_it_without_a_worker(cli: RunCli, shop: Shop) -> None:
    parent = shop.submit()
    child = cli("submit", "shop_tasks:add", "x=1", "--parent", parent).stdout.strip()
    assert cli("job", "cancel", parent).returncode == 0
    assert shop.job(child).state == "CANCELED"


def test_a_job_that_has_ended_cannot_be_canceled(cli: RunCli, shop: Shop) -> None:
    job_id = shop.completed()
    answer = cli("job", "cancel", job_id)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "COMPLETED, which is final" in answer.stderr
    error = json.loads(cli("job", "cancel", job_id, "--json").stdout)["error"]
    assert error["code"] == "terminal_state"


def test_of_several_jobs_each_is_reported_and_one_refusal_does_not_stop_the_others(
    cli: RunCli, shop: Shop
) -> None:
    done, waiting = shop.completed(), shop.submit()
    answer = cli("job", "cancel", done, waiting)
    assert answer.returncode == 2
    assert answer.stdout == f"{waiting}\tCANCELED\tstopped: cancel\n"
    assert "COMPLETED, which is final" in answer.stderr
    lines = [json.loads(line) for line in cli("job", "cancel", done, waiting, "--json").stdout.splitlines()]
    assert [line["error"]["code"] for line in lines] == ["terminal_state", "already_there"]


def test_a_job_is_done_again_as_a_new_one(cli: RunCli, shop: Shop) -> None:
    job_id = shop.failed(queue="ci", description="for Ann")
    answer = cli("job", "retry", job_id)
    again = shop.job(answer.stdout.strip())
    assert (again.state, again.origin_job_id, again.queue, again.description) == (
        "PENDING", job_id, "ci", "for Ann",
    )  # fmt: skip


def test_a_job_that_has_not_ended_is_not_done_again(cli: RunCli, shop: Shop) -> None:
    answer = cli("job", "retry", shop.submit())
    assert (answer.returncode, answer.stdout, shop.count()) == (2, "", 1)
    assert "only a finished job can be retried" in answer.stderr


def test_a_request_id_is_one_request_for_each_job(cli: RunCli, shop: Shop) -> None:
    ids = [shop.failed(), shop.failed()]
    first = cli("job", "retry", *ids, "--request-id", "r1")
    again = cli("job", "retry", *ids, "--request-id", "r1")
    assert (first.returncode, again.stdout, shop.count()) == (0, first.stdout, 4)


# By a filter


def test_job_cancel_with_a_filter_cancels_only_matching_jobs_that_have_not_ended(
    cli: RunCli, shop: Shop
) -> None:
    done, waiting = shop.completed(queue="ci"), shop.submit(queue="ci")
    other = shop.submit()
    answer = cli("job", "cancel", "queue:ci", "--yes")
    assert (answer.returncode, answer.stdout) == (0, f"{waiting}\tCANCELED\tstopped: cancel\n")
    assert (shop.job(done).state, shop.job(other).state) == ("COMPLETED", "PENDING")


def test_job_retry_with_a_filter_retries_only_matching_jobs_that_have_ended(cli: RunCli, shop: Shop) -> None:
    failed = shop.failed(queue="ci")
    shop.submit(queue="ci")
    answer = cli("job", "retry", "queue:ci", "-state:completed", "--yes")
    assert shop.job(answer.stdout.strip()).origin_job_id == failed
    assert shop.count() == 3


def test_job_cancel_with_dry_run_prints_the_matching_jobs_and_cancels_none(cli: RunCli, shop: Shop) -> None:
    job_id = shop.submit(queue="ci")
    answer = cli("job", "cancel", "queue:ci", "--dry-run", "--yes")
    assert answer.returncode == 0
    assert answer.stdout.startswith(f"{job_id}\tPENDING\t")
    assert shop.job(job_id).state == "PENDING"
    line = json.loads(cli("job", "cancel", "queue:ci", "--dry-run", "--json").stdout)
    assert line["id"] == job_id


def test_cancel_by_filter_is_refused_without_a_terminal_to_confirm_on(program: RunCli, shop: Shop) -> None:
    job_id = shop.submit(queue="ci")
    answer = program("job", "cancel", "queue:ci")
    assert answer.returncode == 2
    assert "Refusing to cancel 1 job without confirmation: stdin is not a terminal." in answer.stderr
    assert "→ Pass --yes to do it, or --dry-run to preview." in answer.stderr
    assert shop.job(job_id).state == "PENDING"


def test_a_filter_that_means_nothing_does_nothing(cli: RunCli, shop: Shop) -> None:
    shop.completed()
    answer = cli("job", "cancel", "queue:default", "--yes")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "No job matches.\n")


@pytest.mark.parametrize(("answer", "state"), [("y", "CANCELED"), ("n", "PENDING"), ("", "PENDING")])
def test_cancel_by_filter_on_a_terminal_lists_the_jobs_and_asks_for_confirmation(
    shop: Shop, answer: str, state: str
) -> None:
    ids = shop.submit_many(12, queue="ci")
    code, shown = answered(shop, answer, "job", "cancel", "queue:ci")
    assert code == 0
    assert "… and 2 more" in shown
    assert "Cancel 12 jobs? [y/N]" in shown
    assert {shop.job(job_id).state for job_id in ids} == {state}


def test_ids_and_a_filter_do_not_mix(cli: RunCli, shop: Shop) -> None:
    job_id = shop.submit()
    answer = cli("job", "cancel", job_id, "queue:ci", "--yes")
    assert (answer.returncode, shop.job(job_id).state) == (2, "PENDING")
    assert f"{job_id} is an id, and the rest of" in answer.stderr
    assert f"id:{job_id}" in answer.stderr


def test_a_filter_that_means_too_many_is_refused(
    cli: RunCli, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.cli.nouns.job_views.MAX_SCANNED", 5)
    shop.submit_many(8)
    answer = cli("job", "cancel", "queue:default", "--yes")
    assert answer.returncode == 2
    assert "matches more than 5 jobs, or has to search more" in answer.stderr
    assert "Narrow it down" in answer.stderr
