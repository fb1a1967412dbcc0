"""`interlock dead-letter list|show|retry|discard`."""

from __future__ import annotations

import json

from tests.cli.shop import RunCli, Shop


def test_dead_letters_are_listed_until_they_are_dealt_with(cli: RunCli, shop: Shop) -> None:
    assert "There is no dead letter." in cli("dead-letter", "list").stderr
    first, second, third = (shop.failed(retries=0) for _ in range(3))
    shop.completed()
    shown = cli("dead-letter", "list", "queue:default").stdout.splitlines()
    assert [line.split("\t")[0] for line in shown] == [third, second, first]
    assert "user: ValueError: out of stock" in shown[0]
    new = cli("dead-letter", "retry", first, "--input", '{"x": 2}', "--reason", "a typo")
    assert new.returncode == 0, new.stderr
    assert json.loads(bytes(shop.job(new.stdout.strip()).input)) == {"x": 2}
    left = cli("dead-letter", "discard", second, "--reason", "no use")
    assert (left.returncode, left.stdout) == (0, f"{second}\tdiscarded\n")
    listed = json.loads(cli("dead-letter", "list", "--json").stdout)
    assert [letter["id"] for letter in listed["letters"]] == [third]
    about = cli("dead-letter", "show", second).stdout
    assert "discarded" in about
    assert "no use" in about
    assert json.loads(cli("dead-letter", "show", first, "--json").stdout)["retried_as"] == new.stdout.strip()


def test_discarding_dead_letters_by_filter_requires_confirmation(cli: RunCli, shop: Shop) -> None:
    jobs = [shop.failed(retries=0) for _ in range(2)]
    refusal = cli("dead-letter", "discard", "task:shop_tasks.add")
    assert refusal.returncode == 2
    assert "Refusing to discard 2 dead letters without confirmation" in refusal.stderr
    done = cli("dead-letter", "discard", "task:shop_tasks.add", "--yes")
    assert sorted(done.stdout.split()) == sorted([*jobs, "discarded", "discarded"])


def test_dead_letter_commands_exit_with_code_2_and_the_reason_for_invalid_requests(
    cli: RunCli, shop: Shop
) -> None:
    job = shop.failed(retries=0)
    for wrong, why in (
        (("retry", job, "--input", "{"), "The input is not JSON"),
        (("retry", job, job, "--input", "{}"), "--input is for one dead letter"),
        (("retry", "queue:default", "--input", "{}"), "--input is for one dead letter"),
        (("retry", shop.completed()), "is COMPLETED, so it is not a dead letter"),
    ):
        answer = cli("dead-letter", *wrong)
        assert answer.returncode == 2
        assert why in answer.stderr
    assert cli("dead-letter", "discard", job).returncode == 0
    again = cli("dead-letter", "retry", job)
    assert (again.returncode, f"interlock job retry {job}" in again.stderr) == (2, True)
