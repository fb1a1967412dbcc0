"""What somebody tries first, and the mistakes that are made then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.shop import RunCli, Shop
from tests.cli.test_following_jobs import COMPLETED, FAILED, running
from tests.cli.test_looking_at_jobs import on_a_terminal
from tests.waiting import PROGRAM_S

# The result of a job


def test_submit_and_wait_prints_the_id_first_and_the_result_last(shop: Shop) -> None:
    with running(shop.start("submit", "shop_tasks:add", "x=3", "--wait")) as (process, output):
        job_id = output.readline().strip()
        shop.take(job_id)
        shop.complete(job_id, {"sum": 4})
        rest, stderr = process.communicate(timeout=PROGRAM_S)
        assert process.returncode == COMPLETED
    assert json.loads(rest) == {"sum": 4}, "nothing but the result"
    stages = [line.split()[1] for line in stderr.splitlines() if line.startswith(job_id)]
    assert stages[-1] == "COMPLETED"
    assert set(stages) <= {"PENDING", "RUNNING", "COMPLETED"}


def test_submit_and_wait_with_verbose_prints_the_transitions_before_the_result(shop: Shop) -> None:
    with running(shop.start("submit", "shop_tasks:add", "x=3", "--wait", "-v")) as (process, output):
        job_id = output.readline().strip()
        shop.take(job_id)
        shop.complete(job_id, 4)
        lines = output.read().splitlines()
        assert process.wait(timeout=PROGRAM_S) == COMPLETED
    assert "RUNNING\tCOMPLETED" in lines[-2]
    assert lines[-1] == "4"


def test_submit_and_wait_prints_the_error_of_a_failed_job(shop: Shop) -> None:
    with running(shop.start("submit", "shop_tasks:add", "x=3", "--wait")) as (process, output):
        job_id = output.readline().strip()
        shop.take(job_id)
        shop.fail(job_id)
        rest, stderr = process.communicate(timeout=PROGRAM_S)
        assert process.returncode == FAILED
    assert rest == ""
    assert f"{job_id} FAILED user: ValueError: out of stock" in stderr


# Servers and stores


def test_a_refused_connection_is_not_perhaps_done(cli: RunCli, shop: Shop) -> None:
    answer = cli("submit", "shop_tasks:add", "x=3", "--server", "http://127.0.0.1:1")
    assert answer.returncode == 2
    assert "Cannot connect to the server at http://127.0.0.1:1" in answer.stderr
    assert "Nothing was done" in answer.stderr
    assert "interlock server" in answer.stderr
    assert "may have been executed" not in answer.stderr


@pytest.mark.parametrize("place", ["own.db", "./own.db", "{folder}/own.db"])
def test_a_path_alone_is_a_store(cli: RunCli, shop: Shop, folder: Path, place: str) -> None:
    made = cli("submit", "shop_tasks:add", "x=3", "--store", place.format(folder=folder))
    assert made.returncode == 0, made.stderr
    assert cli("job", "list", "--store", f"sqlite:///{folder}/own.db").stdout.startswith(made.stdout.strip())


def test_a_path_in_the_project_file_begins_where_the_file_is(
    cli: RunCli, shop: Shop, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INTERLOCK_URL")
    (folder / "interlock.toml").write_text('store = "./own.db"\n', encoding="utf-8")
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")
    assert cli("job", "list").returncode == 0
    assert (folder / "own.db").exists()


def test_a_store_that_is_none_is_answered_with_all_that_there_are(cli: RunCli, shop: Shop) -> None:
    answer = cli("job", "list", "--store", "mysql://host/name")
    assert answer.returncode == 2
    for scheme in ("memory:", "sqlite:///", "postgresql://", "redis://", "http://"):
        assert scheme in answer.stderr


# Words and filters


def test_a_state_alone_is_answered_with_the_filter(cli: RunCli, shop: Shop) -> None:
    answer = cli("job", "list", "failed")
    assert "did you mean state:failed" in answer.stderr


@pytest.mark.parametrize("words", [["--state", "failed"], ["--state=failed"]])
def test_an_option_that_is_a_filter_is_answered_with_the_filter(
    cli: RunCli, shop: Shop, words: list[str]
) -> None:
    answer = cli("job", "list", *words)
    assert answer.returncode == 2
    assert "state:failed" in answer.stderr
    assert "--store" not in answer.stderr


def test_a_moment_that_is_none_is_answered_with_both_ways_to_write_one(cli: RunCli, shop: Shop) -> None:
    answer = cli("job", "list", "since:yesterday")
    assert "since:1h" in answer.stderr
    assert "since:2026-01-31" in answer.stderr


def test_an_argument_without_a_name_is_answered_with_the_names_there_are(cli: RunCli, shop: Shop) -> None:
    answer = cli("submit", "shop_tasks:add", "3")
    assert "(x: int, y: int = 1)" in answer.stderr


def test_json_without_an_end_is_reported(cli: RunCli, shop: Shop) -> None:
    answer = cli("submit", "shop_tasks:add", '{"x": 3')
    assert "the closing } is missing" in answer.stderr


def test_a_bare_name_is_answered_with_tasks_of_that_name_here(cli: RunCli, shop: Shop) -> None:
    answer = cli("submit", "add", "x=3")
    assert "shop_tasks:add" in answer.stderr


def test_a_name_that_is_near_to_nothing_is_not_guessed(cli: RunCli, shop: Shop) -> None:
    answer = cli("submit", "shop_tasks.nosuch", "--from", "shop_tasks")
    assert "Did you mean" not in answer.stderr


def test_a_fault_in_the_project_file_is_shown_with_its_line(cli: RunCli, shop: Shop, folder: Path) -> None:
    (folder / "interlock.toml").write_text("losses = 3\n[worker]\nslots = ten\n", encoding="utf-8")
    answer = cli("job", "list")
    assert "slots = ten" in answer.stderr


def test_facts_for_programs_are_not_between_the_sentence_and_the_advice(
    cli: RunCli, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = shop.completed()
    result = cli("job", "cancel", done)
    assert "refusal" not in result.stderr
    assert json.loads(cli("job", "cancel", done, "--json").stdout)["error"]["facts"]["refusal"] == "terminal"
    monkeypatch.setenv("INTERLOCK_DEBUG", "1")
    assert "refusal: terminal" in cli("job", "cancel", done).stderr


def test_a_traceback_in_a_pipe_is_a_line_for_each_of_its_lines(cli: RunCli, shop: Shop) -> None:
    job_id = shop.submit()
    shop.take(job_id)
    shop.write(job_id, "Traceback:\n  File x\nValueError: no")
    lines = cli("job", "logs", job_id).stdout.splitlines()
    assert [line.split("\t")[-1] for line in lines] == ["Traceback:", "  File x", "ValueError: no"]
    assert "␊" not in on_a_terminal(shop, "job", "logs", job_id)
