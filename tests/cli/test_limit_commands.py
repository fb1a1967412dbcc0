"""`interlock limit …`: declare limits, see who holds their slots, and what a job says that waits."""

from __future__ import annotations

import json

import pytest
from tests.cli.shop import RunCli, Shop


def test_a_limit_is_set_listed_shown_explained_and_deleted(cli: RunCli, shop: Shop) -> None:
    answer = cli("limit", "set", "vendor-x", "--max", "1", "--description", "their contract")
    assert (answer.returncode, answer.stdout) == (0, "The limit vendor-x has 1 slot (their contract).\n")
    first, second = (shop.submit(limits=("vendor-x",)) for _ in range(2))
    (listed,) = json.loads(cli("limit", "list", "--json").stdout)
    assert (listed["name"], listed["keys"][0]["used"], listed["keys"][0]["waiting"]) == ("vendor-x", 1, 1)
    assert cli("limit", "list").stdout.split("\t")[:6] == ["vendor-x", "1", "", "1", "1", "1"]
    output = cli("limit", "show", "vendor-x").stdout
    assert "1 of 1 in use, 1 waiting" in output
    assert first in output
    waits = cli("job", "explain", second).stdout
    assert f"It waits for the limit vendor-x: 1 of 1 in use by {first}." in waits
    assert "→ interlock limit show vendor-x" in waits
    assert cli("limit", "set", "tenant:*", "--max", "2").stdout == (
        "The limit tenant:* has 2 slots for each key.\n"
    )
    assert cli("limit", "set", "vendor-y", "--rate", "100", "--per", "1m", "--burst", "10").stdout == (
        "The limit vendor-y has 100 starts every 1m, at most 10 at once.\n"
    )
    assert cli("limit", "delete", "vendor-x").stdout == (
        "The limit vendor-x is deleted; jobs that waited for it are admitted.\n"
    )
    assert json.loads(cli("job", "show", second, "--json").stdout)["admitted_at"]


@pytest.mark.usefixtures("shop")
def test_limit_commands_refuse_an_unknown_limit_and_an_invalid_maximum(cli: RunCli) -> None:
    missing = cli("limit", "show", "vendor-x")
    assert missing.returncode != 0
    assert "interlock limit set vendor-x --max 5" in missing.stderr
    wrong = cli("limit", "set", "a*b", "--max", "0")
    assert "max is 0 and must be 1 to 1000" in wrong.stderr
    assert cli("limit", "list").stderr == "No limit is declared.\n"
