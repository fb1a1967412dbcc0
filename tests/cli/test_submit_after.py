"""`interlock submit --after`, and what the other commands show of it."""

from __future__ import annotations

import pytest
from tests.cli.shop import RunCli, Shop

ADD = ("submit", "shop_tasks:add", "x=3")


def test_a_job_is_submitted_after_others(cli: RunCli, shop: Shop) -> None:
    first, other = (cli(*ADD).stdout.strip() for _ in range(2))
    last = cli(*ADD, "--after", first, "--after", other, "--after-any", "--after-end").stdout.strip()
    view = shop.job(last)
    assert view.after is not None
    assert (view.waits_for, view.after.need, view.after.on) == ((first, other), "any", "end")
    shown = cli("job", "show", last).stdout
    assert f"{first}, {other} (any, on end)" in shown
    assert "waits for" in shown
    assert f"{first} (PENDING)" in cli("job", "explain", last).stdout
    options = ("--unchecked", "--after-into", "x", "--or-skip", "--after", first)
    passed = shop.job(cli("submit", "shop_tasks:add", *options).stdout.strip())
    assert passed.after is not None
    assert (passed.after.into, passed.after.otherwise) == ("x", "skip")


@pytest.mark.usefixtures("shop")
def test_submit_refuses_after_any_without_after_and_after_with_an_unknown_job(cli: RunCli) -> None:
    answer = cli(*ADD, "--after-any")
    assert answer.returncode != 0
    assert "Name the jobs that it comes after: --after ID." in answer.stderr
    unknown = cli(*ADD, "--after", "j_000000000000")
    assert unknown.returncode != 0
    assert "There is no job j_000000000000" in unknown.stderr
