"""The table of sizes in the guide about production is the one that the kept run makes."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest
from bench import sizing

TEXT = sizing.GUIDE.read_text(encoding="utf-8")


def test_the_guide_has_the_table_of_the_run_that_is_kept() -> None:
    assert sizing.page_with(sizing.kept(), TEXT) == TEXT


def test_another_figure_changes_the_table_and_another_run_its_day_and_its_number_of_jobs() -> None:
    run = sizing.kept()
    first, *others = run.stores
    slower = msgspec.structs.replace(first, done_per_s=1_234.4)
    other = msgspec.structs.replace(run, day=dt.date(2030, 1, 2), jobs=70_000, stores=(slower, *others))
    page = sizing.page_with(other, TEXT)
    assert "| 1,230/s |" in page
    assert "70,000 jobs whose handler does nothing (2030-01-02;" in page
    assert len(page.splitlines()) == len(TEXT.splitlines())


def test_a_guide_without_the_table_is_noticed() -> None:
    with pytest.raises(LookupError, match="no table of sizes"):
        sizing.page_with(sizing.kept(), "# Running in production\n")
