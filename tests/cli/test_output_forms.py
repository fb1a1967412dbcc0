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


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("{nosuch}", "There is no field 'nosuch'."),
        ("{stat}", "There is no field 'stat'. Did you mean state?"),
        ("{ID}", "There is no field 'ID'. Did you mean id?"),
        ("{id.nope}", "There is no field 'id.nope'."),
        ("{id.upper}", "There is no field 'id.upper'."),
        ("{attempts[0][stat]}", "There is no field 'stat' in attempts[0]. Did you mean state?"),
        ("{attempts[x]}", "There is no field 'x' in attempts, which is a list."),
        ("{attempts[7]}", "There is no entry 7 in attempts, which is a list of 1 entry."),
        ("{id[0]}", "There is no field '0' in id, which is a string."),
        ("{}", "A field of the template has no name."),
        ("{0}", "A field of the template has no name."),
        ("{", "The template '{' cannot be read: Single '{' encountered in format string."),
        ("{id", "The template '{id' cannot be read: expected '}' before end of string."),
        ("{attempts[0}", "The template '{attempts[0}' cannot be read: expected '}' before end of string."),
        ("{id!z}", "There is no conversion !z in a template."),
        ("{id:>x}", "id is a string, and '>x' is no format for that."),
        ("{attempts:>9}", "attempts is a list, and '>9' is no format for that."),
        ("{attempts[0][state]:d}", "attempts[0][state] is a string, and 'd' is no format for that."),
        ("{completed_at:>9}", "completed_at is null, and '>9' is no format for that."),
        ("{id:{nosuch}}", "There is no field 'nosuch'."),
    ],
)
@pytest.mark.usefixtures("two")
def test_a_template_that_does_not_fit_is_refused_with_the_reason_and_a_remedy(
    cli: RunCli, template: str, sentence: str
) -> None:
    answer = cli("job", "list", "-o", f"template={template}")
    assert (answer.returncode, answer.stdout) == (2, "")
    first, *rest = answer.stderr.splitlines()
    assert first == f"Error: {sentence}"
    assert rest[-1].startswith("→ ")
    assert "Error" not in "".join(rest), "names of exceptions are not for users"


@pytest.mark.usefixtures("two")
def test_an_unknown_field_of_a_template_is_refused_with_the_fields_that_exist(cli: RunCli) -> None:
    def names(template: str) -> set[str]:
        error = json.loads(cli("job", "list", "--json", "-o", f"template={template}").stdout)["error"]
        return {*error["allowed"]}

    assert {"id", "queue", "state", "completed_at"} <= names("{nosuch}")
    assert {"state", "failure"} <= names("{attempts[0][nosuch]}")
    assert "queue" not in names("{attempts[0][nosuch]}")


def test_a_field_that_json_leaves_out_is_a_field_of_templates(cli: RunCli, two: list[str]) -> None:
    assert "completed_at" not in json.loads(cli("job", "show", two[0], "--json").stdout)
    assert cli("job", "show", two[0], "-o", "template={completed_at} {losses}").stdout == "None 0\n"


def test_braces_formats_and_conversions_of_a_template_are_those_of_python(
    cli: RunCli, two: list[str]
) -> None:
    answer = cli("job", "show", two[0], "-o", "template={{{id!s:>20}}} {completed_at!s:<6}|")
    assert answer.stdout == f"{{{two[0]:>20}}} None  |\n"


def test_columns_are_chosen_and_ordered(cli: RunCli, two: list[str]) -> None:
    assert cli("job", "list", "--columns", "queue,id").stdout == f"default\t{two[0]}\nmail\t{two[1]}\n"
    assert cli("worker", "list", "--columns", "name").stdout == ""


@pytest.mark.parametrize("words", [("-ojson",), ("--output=json",), ("-o", "table", "-o", "json")])
def test_a_format_is_given_as_every_other_option_is(
    cli: RunCli, two: list[str], words: tuple[str, ...]
) -> None:
    assert [row["id"] for row in json.loads(cli("job", "list", *words).stdout)["jobs"]] == two


def test_the_former_name_of_a_column_still_chooses_and_sorts_it(cli: RunCli, shop: Shop) -> None:
    ids = [shop.submit(description=text) for text in ("b", "a")]
    rows = f"a\t{ids[1]}\nb\t{ids[0]}\n"
    assert cli("job", "list", "--columns", "message,id", "--sort", "message").stdout == rows
    assert cli("job", "list", "--columns", "says,id", "--sort", "says").stdout == rows
    assert cli("job", "list", "--columns", "says,id", "--sort", "-says").stdout.startswith("b\t")


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
