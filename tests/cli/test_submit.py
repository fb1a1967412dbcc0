"""`interlock submit`: what is stored, what is answered, and what is refused before anything is stored."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests import programs
from tests.cli.shop import RunCli, Shop

from interlock.lifecycles.job import MAX_DEPTH

AN_ID = re.compile(r"j_[0-9a-f]{12}\n")


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What stands on standard input."""

    def put(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8"))

    return put


def input_of(shop: Shop, job_id: str) -> Any:
    return msgspec.json.decode(shop.job(job_id.strip()).input)


def test_the_answer_is_the_id_and_nothing_else(cli: RunCli, shop: Shop) -> None:
    answer = cli("submit", "shop_tasks:add", "x=3")
    assert answer.returncode == 0
    assert AN_ID.fullmatch(answer.stdout)
    assert answer.stderr == "a module that talks\n"  # stdout is for the answer
    view = shop.job(answer.stdout.strip())
    assert (view.task, view.state, input_of(shop, view.id)) == ("shop_tasks.add", "PENDING", {"x": 3})


@pytest.mark.parametrize(
    "words",
    [
        ["shop_tasks.add", "x=3"],
        ["shop_tasks.py:add", "x=3"],
        ["add", "x=3", "--from", "shop_tasks"],
        ["shop_tasks.add", '{"x": 3}'],
        ["shop_tasks:add", "[3]"],
    ],
)
def test_a_task_and_its_arguments_can_be_named_in_several_ways(
    cli: RunCli, shop: Shop, words: list[str]
) -> None:
    answer = cli("submit", *words)
    assert answer.returncode == 0, answer.stderr
    view = shop.job(answer.stdout.strip())
    assert (view.task, input_of(shop, view.id)) == ("shop_tasks.add", {"x": 3})


def test_values_are_json_where_they_can_be_and_text_otherwise(cli: RunCli, shop: Shop) -> None:
    words = ['a={"b": [1, null]}', "c=true", "d=two words", "e=", "f=1=2", 'g="7"']
    answer = cli("submit", "anything", "--unchecked", *words)
    assert input_of(shop, answer.stdout) == {
        "a": {"b": [1, None]}, "c": True, "d": "two words", "e": "", "f": "1=2", "g": "7",
    }  # fmt: skip


def test_submit_options_override_the_options_of_the_task(cli: RunCli, shop: Shop) -> None:
    plain = shop.job(cli("submit", "shop_tasks:send", "address=a").stdout.strip())
    assert (plain.queue, plain.priority) == ("mail", 0)
    answer = cli(
        "submit", "shop_tasks:send", "address=a", "--queue", "ci", "--priority", "5", "--label", "gpu",
        "--label", "big", "--workers", "3", "--delay", "1h", "--description", "for you", "--timeout", "10m",
    )  # fmt: skip
    view = shop.job(answer.stdout.strip())
    assert (view.queue, view.priority, view.labels) == ("ci", 5, ("big", "gpu"))
    assert (view.worker_count, len(view.attempts), view.description) == (3, 3, "for you")
    assert view.ready_at is not None
    assert (view.ready_at - view.created_at).total_seconds() == pytest.approx(3600, abs=5)


def test_the_view_is_answered_in_json(cli: RunCli, shop: Shop) -> None:
    view = json.loads(cli("submit", "shop_tasks:add", "x=3", "--json").stdout)
    assert (view["state"], view["input"]) == ("PENDING", {"x": 3})


def test_many_of_the_same_are_many_ids(cli: RunCli, shop: Shop) -> None:
    ids = cli("submit", "shop_tasks:add", "x=3", "--count", "3").stdout.split()
    assert len(set(ids)) == shop.count() == 3
    lines = cli("submit", "shop_tasks:add", "x=3", "--count", "2", "--json").stdout.splitlines()
    assert [json.loads(line)["state"] for line in lines] == ["PENDING", "PENDING"]


def test_a_request_id_makes_one_job_however_often_it_is_sent(cli: RunCli, shop: Shop) -> None:
    first = cli("submit", "shop_tasks:add", "x=3", "--request-id", "r1")
    again = cli("submit", "shop_tasks:add", "x=3", "--request-id", "r1")
    assert (first.returncode, first.stdout, shop.count()) == (0, again.stdout, 1)
    other = cli("submit", "shop_tasks:add", "x=4", "--request-id", "r1")
    assert (other.returncode, shop.count()) == (2, 1)


def test_a_parent_may_be_named_by_the_beginning_of_its_id(cli: RunCli, shop: Shop) -> None:
    parent = shop.submit()
    answer = cli("submit", "shop_tasks:add", "x=3", "--parent", parent[2:11])
    assert shop.job(answer.stdout.strip()).parent_job_id == parent
    assert shop.job(parent).children == 1


# A command for a shell


@pytest.mark.parametrize(
    ("words", "run"),
    [
        (["--", "sh", "-c", "make test"], "sh -c 'make test'"),
        (["--queue", "ci", "--", "make test && echo done"], "make test && echo done"),
        (["--shell", "make test"], "make test"),
        (["interlock.shell", "run=make test"], "make test"),
    ],
)
def test_a_command_becomes_a_job_of_the_shell(cli: RunCli, shop: Shop, words: list[str], run: str) -> None:
    answer = cli("submit", *words)
    assert answer.returncode == 0, answer.stderr
    assert shop.job(answer.stdout.strip()).task == "interlock.shell"
    assert input_of(shop, answer.stdout) == {"run": run}


def test_behind_a_task_two_dashes_only_end_the_options(cli: RunCli, shop: Shop) -> None:
    answer = cli("submit", "shop_tasks:add", "--", "x=-3")
    assert input_of(shop, answer.stdout) == {"x": -3}


# Standard input


def test_every_line_of_standard_input_is_a_job(cli: RunCli, shop: Shop, typed: Any) -> None:
    typed('{"x": 1}\n\n[2, 5]\n{"x": 3}\n')
    ids = cli("submit", "shop_tasks:add", "-", "--queue", "ci").stdout.split()
    assert [input_of(shop, job_id) for job_id in ids] == [{"x": 1}, {"x": 2, "y": 5}, {"x": 3}]
    assert shop.job(ids[0]).queue == "ci"


def test_a_line_of_stdin_may_contain_the_task_and_options_of_its_job(
    cli: RunCli, shop: Shop, typed: Any
) -> None:
    typed('{"task": "shop_tasks.add", "input": {"x": 1}, "queue": "ci"}\n{"task": "shop_tasks.fail"}\n')
    first, second = cli("submit", "-", "--priority", "3").stdout.split()
    assert (shop.job(first).task, shop.job(first).queue) == ("shop_tasks.add", "ci")
    assert (shop.job(second).task, shop.job(second).priority) == ("shop_tasks.fail", 3)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ('{"x": "no"}', "Line 2: The arguments do not fit shop_tasks.add: x: expected int"),
        ("{x: 1}", "Line 2: The arguments are not JSON"),
        ("3", "Line 2: The arguments are int, and should be a JSON object or list."),
    ],
)
def test_one_bad_line_is_named_and_nothing_is_stored(
    cli: RunCli, shop: Shop, typed: Any, bad: str, says: str
) -> None:
    typed(f'{{"x": 1}}\n{bad}\n{{"x": 3}}\n')
    answer = cli("submit", "shop_tasks:add", "-")
    assert (answer.returncode, answer.stdout, shop.count()) == (2, "", 0)
    assert says in answer.stderr


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{}", 'Line 1: It is not an object with a "task".'),
        ('{"task": "shop_tasks.add", "queu": "ci"}', "queu"),
        ('{"task": "shop_tasks.ad"}', "There is no task 'ad' of shop_tasks. Did you mean add?"),
    ],
)
def test_a_whole_line_that_is_no_job_is_refused(
    cli: RunCli, shop: Shop, typed: Any, line: str, says: str
) -> None:
    typed(line)
    answer = cli("submit", "-")
    assert (answer.returncode, answer.stdout, shop.count()) == (2, "", 0)
    assert says in answer.stderr


# Refusals: the sentence of the library, nothing stored, no traceback


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["shop_tasks:ad", "x=3"], "There is no task 'ad' of shop_tasks. Did you mean add?"),
        (["nothing"], "There is no task 'nothing'."),
        (["nowhere.add", "x=3"], "There is no task 'nowhere.add'."),
        (["nowhere:add", "x=3"], "Cannot load nowhere: there is no module nowhere"),
        (["ad", "--from", "shop_tasks"], "Use one of: shop_tasks.add, shop_tasks.fail, shop_tasks.send; or"),
        (["broken:add"], "it raises ZeroDivisionError: division by zero"),
        (["broken.add"], "it raises ZeroDivisionError: division by zero"),
        (["shop_tasks:add"], "The arguments do not fit shop_tasks.add: x is missing."),
        (["shop_tasks:add", "x=three"], "The arguments do not fit shop_tasks.add: x: expected int, got str."),
        (["shop_tasks:add", "x=3", "z=1"], "The arguments do not fit shop_tasks.add: it takes no z."),
        (["shop_tasks:send", "address=7"], "quote it twice: address='\"...\"'"),
        (["shop_tasks:add", "x=3", "x=4"], "x is given twice."),
        (["shop_tasks:add", "3"], "'3' is neither key=value nor a JSON object."),
        (["shop_tasks:add", '{"x": }'], "The arguments are not JSON"),
        (["shop_tasks:add", "x=3", "--workers", "0"], "worker_count is 0 and must be 1 to 10"),
        (["shop_tasks:add", "x=3", "--workers", "11"], "worker_count is 11 and must be 1 to 10"),
        (["shop_tasks:add", "x=3", "--retries", "-1"], "retries is -1 and must be 0 to 100"),
        (["shop_tasks:add", "x=3", "--delay", "soon"], "'soon' is not a duration"),
        (["shop_tasks:add", "x=3", "--parent", "j_0123456789ab"], "There is no job j_0123456789ab"),
        (["shop_tasks:add", "x=3", "--parent", "me"], "'me' is not the id of a job"),
        (["--shell", "ls", "shop_tasks:add"], "Both a task (shop_tasks:add) and a shell command"),
        (["--shell", "ls", "--", "ls"], "A command was given twice"),
        ([], "No task given."),
    ],
)  # fmt: skip
def test_an_invalid_submission_exits_with_code_2_and_stores_no_job(
    cli: RunCli, shop: Shop, words: list[str], says: str
) -> None:
    answer = cli("submit", *words)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert says in answer.stderr
    assert "Traceback" not in answer.stderr
    assert shop.count() == 0


@pytest.mark.parametrize("state", ["completed", "failed", "canceled"])
def test_a_parent_that_has_ended_takes_no_child(cli: RunCli, shop: Shop, state: str) -> None:
    parent = getattr(shop, state)()
    answer = cli("submit", "shop_tasks:add", "x=3", "--parent", parent)
    assert (answer.returncode, answer.stdout, shop.count()) == (2, "", 1)
    assert f"The job {parent} is {state.upper()}, which is final" in answer.stderr


def test_a_tree_is_at_most_five_deep(cli: RunCli, shop: Shop) -> None:
    deepest = shop.submit()
    for _ in range(MAX_DEPTH):
        deepest = cli("submit", "shop_tasks:add", "x=3", "--parent", deepest).stdout.strip()
    answer = cli("submit", "shop_tasks:add", "x=3", "--parent", deepest)
    assert (answer.returncode, shop.count()) == (2, 1 + MAX_DEPTH)
    assert "A job is at most 5 deep in its tree" in answer.stderr


def test_a_payload_of_100_megabytes_is_refused_without_being_stored(shop: Shop, tmp_path: Path) -> None:
    large = tmp_path / "large.jsonl"
    with large.open("wb") as file:
        file.write(b'{"x": "')
        for _ in range(100):
            file.write(b"a" * 1_048_576)
        file.write(b'"}\n')
    with large.open("rb") as file:
        answer = programs.run("submit", "anything", "--unchecked", "-", folder=shop.folder, stdin=file)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "The input of a job has at most 262144 bytes, not 104857609." in answer.stderr
    assert shop.count() == 0


def test_a_refusal_is_answered_in_json_too(cli: RunCli, shop: Shop) -> None:
    answer = cli("submit", "shop_tasks:add", "x=three", "--json")
    error = json.loads(answer.stdout)["error"]
    assert (answer.returncode, error["code"], error["facts"]["task"]) == (
        2,
        "invalid_arguments",
        "shop_tasks.add",
    )


def test_metadata_and_the_middleware_of_the_project_are_part_of_a_submission(cli: RunCli, shop: Shop) -> None:
    (shop.folder / "context.py").write_text(
        "class Tenant:\n    def submit(self, spec):\n        return spec.with_metadata(tenant='acme')\n",
        encoding="utf-8",
    )
    (shop.folder / "interlock.toml").write_text('middleware = ["context:Tenant"]\n', encoding="utf-8")
    made = cli("submit", "shop_tasks:add", "x=1", "--metadata", "a=b=c", "--metadata", "d=")
    assert made.returncode == 0, made.stderr
    assert shop.job(made.stdout.strip()).metadata == {"a": "b=c", "d": "", "tenant": "acme"}
    assert "is not KEY=TEXT" in cli("submit", "shop_tasks:add", "x=1", "--metadata", "a").stderr
