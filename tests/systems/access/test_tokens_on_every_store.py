"""The life of a token, the same on every store: made, used, rotated, retired, revoked."""

from __future__ import annotations

from datetime import timedelta

from tests.systems.orchestrator.test_every_store_alike import OpenHouse

from interlock.engine.audit import audit
from interlock.errors import NotSignedIn
from interlock.systems.access.authentication import TokenCheck
from interlock.systems.access.tokens import (
    TOKEN,
    Tokens,
)
from interlock.systems.catalogue import JOURNALLED
from interlock.systems.settings import DEFAULT_SETTINGS
from interlock.wire.access import Issued, Role


async def lets_in(tokens: Tokens, issued: Issued) -> bool:
    check = TokenCheck(tokens, tokens._engine.clock)
    try:
        await check.principal_of(issued.token, "192.0.2.1")
    except NotSignedIn:
        return False
    return await check.store_uses() == 1


async def test_a_token_lives_through_a_rotation_on_every_store(open_house: OpenHouse) -> None:
    one, other = [await open_house(DEFAULT_SETTINGS) for _ in range(2)]
    tokens, elsewhere = one.port.services.tokens, other.port.services.tokens
    old = await tokens.create("ci", Role.VIEWER, queues=("mail",), request_id="make")
    new = await elsewhere.rotate("ci", overlap=timedelta(hours=1), request_id="turn")
    assert await lets_in(elsewhere, old)
    assert await lets_in(tokens, new)
    assert await tokens.any()
    view = await tokens.get("ci")
    assert (view.state, view.used_from, view.queues) == ("rotating", "192.0.2.1", ("mail",))
    assert await tokens.cursor_key(view.id) == await elsewhere.cursor_key(view.id)
    open_house.move(3_601)
    await one.submit()  # whoever opens the store now finds that so much time has passed
    later = (await open_house(DEFAULT_SETTINGS)).port.services.tokens
    assert not await lets_in(later, old)
    assert await later.sweep() == 1
    assert (await later.get("ci")).state == "active"
    assert await lets_in(later, new)
    assert (await later.revoke("ci", request_id="end")).state == "revoked"
    assert (await later.revoke("ci", request_id="end")).state == "revoked"
    assert not await lets_in(later, new)
    found = await audit(one.store, JOURNALLED, [TOKEN.name])
    assert (found.steps, found.faults) == (3, [])
