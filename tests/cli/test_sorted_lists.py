"""`--sort` and `--reverse`: the printed rows in another order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.cli.shop import RunCli, Shop
from tests.cli.test_looking_at_jobs import column, on_a_terminal

from interlock.cli import forms, output
from interlock.cli.output import Sheet

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


@pytest.fixture
def three(shop: Shop) -> list[str]:
    """Three jobs, the oldest first, in the queues b, a and c."""
    return [shop.submit(queue=queue) for queue in ("b", "a", "c")]


def test_rows_are_sorted_by_a_column_in_both_directions(cli: RunCli, three: list[str]) -> None:
    b, a, c = three
    assert column(cli("job", "list").stdout, 0) == [c, a, b]
    assert column(cli("job", "list", "--sort", "queue").stdout, 0) == [a, b, c]
    assert column(cli("job", "list", "--sort", "-queue").stdout, 0) == [c, b, a]
    assert column(cli("job", "list", "--sort=queue", "--reverse").stdout, 0) == [c, b, a]
    assert column(cli("job", "list", "--reverse").stdout, 0) == [b, a, c]


def test_the_second_column_decides_between_equals(cli: RunCli, shop: Shop, three: list[str]) -> None:
    again = shop.submit(queue="a")
    b, a, c = three
    assert column(cli("job", "list", "--sort", "queue,submitted").stdout, 0) == [a, again, b, c]
    assert column(cli("job", "list", "--sort", "queue,-submitted").stdout, 0) == [again, a, b, c]


def test_a_column_that_is_not_printed_can_be_sorted_by(cli: RunCli, three: list[str]) -> None:
    b, a, c = three
    assert cli("job", "list", "--sort", "queue", "--columns", "id").stdout.split() == [a, b, c]


def test_every_noun_is_sorted_in_the_same_way(cli: RunCli, three: list[str]) -> None:
    assert len(three) == 3
    assert column(cli("queue", "list", "--sort", "-name").stdout, 0) == ["c", "b", "a"]
    machines = column(cli("machine", "list", "--sort", "name").stdout, 0)
    assert machines == sorted(machines)


def test_a_time_column_on_a_terminal_is_sorted_by_time_and_not_by_its_text(
    shop: Shop, three: list[str]
) -> None:
    b, a, c = three
    shown = on_a_terminal(shop, "job", "list", "--sort", "submitted", "--columns", "id")
    assert shown.index(b) < shown.index(a) < shown.index(c)


def test_numbers_durations_and_times_are_sorted_by_value_and_empty_cells_are_last(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        ("9", output.lasting(90), output.ago(NOW - timedelta(hours=3), NOW)),
        ("10", output.lasting(9), output.ago(NOW - timedelta(minutes=20), NOW)),
        ("", "", ""),
        ("1000+", output.lasting(0.5), output.ago(NOW + timedelta(seconds=5), NOW)),
    ]
    sheet = Sheet("thing", "", ("number", "took", "when"), rows)

    def numbers(*sort: str) -> list[str]:
        monkeypatch.setattr(forms, "chosen", forms.OutputForm(sort=sort))
        output.print_sheets([sheet])
        return column(capsys.readouterr().out, 0)

    assert numbers("number") == ["9", "10", "1000+", ""]
    assert numbers("-number") == ["1000+", "10", "9", ""]
    assert numbers("took") == ["1000+", "10", "9", ""]
    assert numbers("when") == ["9", "10", "1000+", ""]
    assert numbers("-when") == ["1000+", "10", "9", ""]


def test_a_sorted_page_prints_a_note_that_only_its_rows_are_sorted(cli: RunCli, three: list[str]) -> None:
    assert len(three) == 3
    answer = cli("job", "list", "--limit", "2", "--sort", "queue")
    assert column(answer.stdout, 3) == ["a", "c"]
    assert "There are more: --cursor" in answer.stderr
    assert "(only the rows above are sorted)" in answer.stderr
    assert "sorted" not in cli("job", "list", "--limit", "2").stderr


@pytest.mark.parametrize("words", [("--json",), ("-o", "yaml"), ("-o", "template={id}")])
@pytest.mark.parametrize("order", [("--sort", "queue"), ("--reverse",)])
@pytest.mark.usefixtures("three")
def test_sorting_of_machine_readable_output_is_refused_with_an_error(
    cli: RunCli, words: tuple[str, ...], order: tuple[str, ...]
) -> None:
    answer = cli("job", "list", *words, *order)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "JSON keeps the order of the store" in answer.stderr


@pytest.mark.parametrize("sort", ["nope", "-nope", "queue,nope"])
@pytest.mark.usefixtures("three")
def test_sorting_by_an_unknown_column_exits_with_code_2_and_prints_the_known_columns(
    cli: RunCli, sort: str
) -> None:
    answer = cli("job", "list", "--sort", sort)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "There is no column 'nope'." in answer.stderr
    assert "submitted" in answer.stderr
