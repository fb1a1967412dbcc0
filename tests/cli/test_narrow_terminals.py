"""Tables on terminals of every width: ids and states can always be read and copied."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from tests.cli.shop import Shop
from tests.cli.test_looking_at_jobs import on_a_terminal

from interlock.cli.output import Sheet
from interlock.cli.tables import rendered

WIDTHS = (60, 80, 100)


@pytest.mark.parametrize("width", [60, 80])
def test_a_list_of_jobs_never_breaks_an_id_or_a_state(shop: Shop, width: int) -> None:
    done = shop.completed(description="a job with a long description " * 4)
    failed = shop.failed(task="interlock.shell")
    shown = on_a_terminal(shop, "job", "list", COLUMNS=str(width), NO_COLOR="1").replace("\r", "")
    lines = shown.splitlines()
    assert all(len(line) <= width for line in lines), shown
    rows = [line.split()[:2] for line in lines if "j_" in line]
    assert rows == [[failed, "FAILED"], [done, "COMPLETED"]], shown


@pytest.mark.parametrize("width", WIDTHS)
def test_a_list_row_too_wide_for_the_terminal_ends_with_an_ellipsis(width: int) -> None:
    row = ("r_0123456789abcdef", "CANCEL_REQUESTED", "a.rather.long.name", "now", "words " * 40)
    sheet = Sheet("run", "", ("id", "state", "task", "submitted", "message"), [row, row], one_line=True)
    lines = _printed(sheet, width)
    assert len(lines) == len(sheet.rows)
    assert all(line.split()[:2] == list(row[:2]) and line.endswith("…") for line in lines)


def test_columns_that_a_list_can_spare_are_left_out_before_others_are_cut_short() -> None:
    row = ("j_0123456789ab", "COMPLETED", "shop.send", "default", "3 min ago", "10 ms", "sent")
    columns = ("id", "state", "task", "queue", "submitted", "took", "message")
    sheet = Sheet("job", "", columns, [row], one_line=True, spare=("queue", "took"))
    assert _printed(sheet, 100)[0].split() == " ".join(row).split()
    assert _printed(sheet, 62)[0].split() == [*row[:3], "3", "min", "ago", "sent"]


@pytest.mark.parametrize("width", WIDTHS)
def test_a_table_of_long_texts_wraps_them_and_breaks_no_state(width: int) -> None:
    row = ("1.1", "CANCEL_REQUESTED", "host#1", "now", "10 ms", "a sentence that is long " * 10)
    columns = ("attempt", "state", "runner", "began", "took", "message")
    lines = _printed(Sheet("attempt", "", columns, [row]), width)
    assert lines[0].split()[:2] == ["1.1", "CANCEL_REQUESTED"]
    assert len(lines) > 1


def _printed(sheet: Sheet, width: int) -> list[str]:
    """The rows as they are printed, without the head of the table."""
    text = rendered(sheet, Console(file=io.StringIO(), width=width, color_system=None, highlight=False))
    lines = [line.rstrip() for line in text.splitlines()]
    assert all(len(line) <= width for line in lines), text
    head = next(place for place, line in enumerate(lines) if "─" in line)
    return [line for line in lines[head + 1 :] if line]
