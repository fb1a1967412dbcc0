"""`interlock submit` with unique keys and times to start, and what the other commands show of them."""

from __future__ import annotations

import pytest
from tests.cli.shop import RunCli, Shop

UNIQUE = ("submit", "shop_tasks:add", "x=3", "--unique-by", "x")


@pytest.mark.usefixtures("shop")
def test_a_duplicate_is_refused_with_the_id_of_the_job_that_is_there(cli: RunCli) -> None:
    first = cli(*UNIQUE).stdout.strip()
    again = cli(*UNIQUE)
    assert (again.returncode != 0, again.stdout) == (True, "")
    assert f"The job {first} has the unique key" in again.stderr
    assert f"interlock job show {first}" in again.stderr


@pytest.mark.usefixtures("shop")
def test_submit_prints_the_existing_job_and_reports_that_none_was_created(cli: RunCli) -> None:
    first = cli(*UNIQUE).stdout
    again = cli(*UNIQUE, "--if-exists", "existing")
    assert (again.returncode, again.stdout) == (0, first)
    assert f"{first.strip()} exists already; no job was created." in again.stderr


def test_a_key_of_your_own_and_every_option(cli: RunCli, shop: Shop) -> None:
    options = ["--unique", "k", "--unique-scope", "queue", "--unique-state", "pending", "--delay", "5m"]
    first = cli("submit", "shop_tasks:add", "x=3", *options, "--if-exists", "debounce")
    assert first.returncode == 0, first.stderr
    view = shop.job(first.stdout.strip())
    assert view.unique_key == "k"
    shown = cli("job", "show", view.id).stdout
    assert "unique key" in shown
    wrong = cli(*UNIQUE, "--if-exists", "ignore")
    assert wrong.returncode != 0
    assert "policies are reject, existing, replace and debounce" in wrong.stderr


def test_times_have_a_zone_and_limits_are_times_or_durations(cli: RunCli, shop: Shop) -> None:
    answer = cli("submit", "shop_tasks:add", "x=3", "--at", "2030-12-24T18:00+01:00", "--not-after", "15m")
    view = shop.job(answer.stdout.strip())
    assert view.ready_at is not None
    assert view.not_after is not None
    assert view.ready_at.isoformat() == "2030-12-24T17:00:00+00:00"
    assert (view.not_after - view.ready_at).total_seconds() == 900
    naive = cli("submit", "shop_tasks:add", "x=3", "--at", "2030-12-24T18:00")
    assert "at is 2030-12-24T18:00:00, which has no time zone" in naive.stderr
    wrong = cli("submit", "shop_tasks:add", "x=3", "--not-after", "tomorrow")
    assert "--not-after tomorrow is not a time." in wrong.stderr
