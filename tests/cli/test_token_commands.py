"""`interlock token`: create, list, show, rotate and revoke, on a store."""

from __future__ import annotations

import json
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest
from tests.cli.shop import Shop

from interlock.errors import NotSignedIn
from interlock.systems.access.authentication import TokenCheck
from interlock.systems.embedded import EmbeddedOrchestrator

RunCli = Callable[..., CompletedProcess[str]]


def lets_in(shop: Shop, token: str) -> bool:
    async def work(port: EmbeddedOrchestrator) -> bool:
        check = TokenCheck(port.services.tokens, port.services.engine.clock)
        try:
            await check.principal_of(token, "192.0.2.1")
        except NotSignedIn:
            return False
        return await check.store_uses() == 1

    return shop.do(work)


def test_a_token_is_made_shown_rotated_and_revoked(shop: Shop, cli: RunCli) -> None:
    made = cli("token", "create", "ci", "--role", "submitter", "--queue", "mail", "--expires", "30d")
    token = made.stdout.strip()
    assert "Store the secret now" in made.stderr
    assert lets_in(shop, token)
    (row,) = cli("token", "list").stdout.splitlines()
    cells = row.split("\t")
    assert cells[:4] == ["ci", "submitter", "active", "mail"]
    assert cells[6] == "192.0.2.1"
    shown = cli("token", "show", "ci").stdout
    assert "last used\t" in shown
    assert "from\t192.0.2.1" in shown

    rotated = cli("token", "rotate", "ci", "--overlap", "1h", "--reason", "every quarter")
    assert "The old secret works until" in rotated.stderr
    assert lets_in(shop, token)
    assert lets_in(shop, rotated.stdout.strip())
    shop.later(3_601)
    assert not lets_in(shop, token)
    assert lets_in(shop, rotated.stdout.strip())
    final = cli("token", "rotate", "ci", "--overlap", "0", "--json")
    assert not lets_in(shop, rotated.stdout.strip())
    assert lets_in(shop, json.loads(final.stdout)["token"])
    assert cli("token", "revoke", "ci").stdout == "ci (submitter) is revoked.\n"
    view = json.loads(cli("token", "show", "ci", "--json").stdout)
    assert (view["state"], view["used_from"], view["queues"]) == ("revoked", "192.0.2.1", ["mail"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("show", "nobody"), "There is no token nobody."),
        (("rotate", "nobody"), "There is no token nobody."),
        (("rotate", "ci", "--overlap", "soon"), "is not a duration"),
        (("rotate", "ci", "--overlap", "90d"), "Give an overlap from 0"),
        (("create", "ci", "--role", "viewer"), "There is an active token ci already."),
    ],
)
def test_token_commands_exit_with_code_2_and_the_reason_for_invalid_requests(
    shop: Shop, cli: RunCli, words: tuple[str, ...], message: str
) -> None:
    cli("token", "create", "ci", "--role", "viewer")
    refused = cli("token", *words)
    assert refused.returncode == 2
    assert message in refused.stderr
    assert "Traceback" not in refused.stderr
    assert shop.url
