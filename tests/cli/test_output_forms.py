"""`-o` and `--columns`: the same answer in the form that somebody needs."""

from __future__ import annotations

import json

import pytest
import yaml
from tests.cli.shop import RunCli, Shop
from tests.cli.test_looking_at_jobs import on_a_terminal

from interlock.cli import forms


@pytest.fixture
def two(shop: Shop) -> list[str]:
    """Two jobs, the newest first."""
    first = shop.submit(queue="mail")
    return [shop.submit(), first]


def test_json_yaml_and_jsonl_output_contain_the_same_data(cli: RunCli, two: list[str]) -> None:
    page = json.loads(cli("job", "list", "--json").stdout)
    assert json.loads(cli("job", "list", "-o", "json").stdout) == page
    assert yaml.safe_load(cli("job", "list", "--output", "yaml").stdout) == page
    lines = cli("job", "list", "--output=jsonl").stdout.splitlines()
    assert [json.loads(line) for line in lines] == page["jobs"]
    assert [job["id"] for job in page["jobs"]] == two


def test_a_template_is_filled_for_each_record(cli: RunCli, two: list[str]) -> None:
    answer = cli("job", "list", "-o", "template={id} in {queue}, {attempts[0][state]}")
    assert answer.stdout.splitlines() == [f"{two[0]} in default, QUEUED", f"{two[1]} in mail, QUEUED"]
    assert cli("job", "show", two[1], "-o", "template={state}").stdout == "PENDING\n"
    assert cli("queue", "list", "-o", "template={name}").stdout.split() == ["default", "mail"]


@pytest.mark.parametrize("template", ["{nope}", "{", "{attempts[x]}", "{id.nope}", "{id:>x}"])
@pytest.mark.usefixtures("two")
def test_a_template_that_does_not_fit_is_refused_with_the_fields(cli: RunCli, template: str) -> None:
    answer = cli("job", "list", "-o", f"template={template}")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "does not fit" in answer.stderr
    assert "queue" in answer.stderr


def test_columns_are_chosen_and_ordered(cli: RunCli, two: list[str]) -> None:
    assert cli("job", "list", "--columns", "queue,id").stdout == f"default\t{two[0]}\nmail\t{two[1]}\n"
    assert cli("worker", "list", "--columns", "name").stdout == ""


@pytest.mark.parametrize("words", [("-ojson",), ("--output=json",), ("-o", "table", "-o", "json")])
def test_a_format_is_given_as_every_other_option_is(
    cli: RunCli, two: list[str], words: tuple[str, ...]
) -> None:
    assert [row["id"] for row in json.loads(cli("job", "list", *words).stdout)["jobs"]] == two


@pytest.mark.usefixtures("two")
def test_an_unknown_column_exits_with_code_2_and_prints_the_known_columns(cli: RunCli) -> None:
    answer = cli("job", "list", "--columns", "id,nope")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "There is no column 'nope'." in answer.stderr
    assert "submitted" in answer.stderr


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("words", [("-o", "xml"), ("-o",), ("--output", "template")])
def test_a_format_that_is_not_known_is_refused(cli: RunCli, words: tuple[str, ...]) -> None:
    answer = cli("job", "list", *words)
    assert (answer.returncode, answer.stdout) == (2, "")


def test_a_choice_ends_with_its_command(cli: RunCli, two: list[str]) -> None:
    assert cli("job", "list", "-o", "yaml", "--columns", "id").stdout.startswith("jobs:\n- id")
    assert forms.chosen == forms.OutputForm()
    assert json.loads(cli("job", "show", two[0], "--json").stdout)["id"] == two[0]
    assert cli("db", "status", "--json").stdout.startswith("{")


def test_a_wide_table_shortens_nothing(shop: Shop) -> None:
    described = "a description that is far longer than a narrow terminal could show on one line of its own"
    shop.submit(description=described)
    narrow = {"COLUMNS": "60"}
    assert described not in on_a_terminal(shop, "job", "list", **narrow)
    assert described in on_a_terminal(shop, "job", "list", "-o", "wide", **narrow)
