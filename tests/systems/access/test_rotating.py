"""Rotating tokens, when they were used last, and what a repeated request is answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from tests.systems.access.test_tokens import House

from interlock.engine.audit import audit
from interlock.errors import (
    InvalidToken,
    NotSignedIn,
    RequestIdReused,
    SecretShownOnce,
    TransitionRefused,
    UnknownToken,
)
from interlock.store.records import Key
from interlock.systems.access.authentication import BELIEVED_S, USES_EVERY_S, TokenCheck
from interlock.systems.access.tokens import (
    OVERLAP,
    TOKEN,
    read_secret,
)
from interlock.systems.catalogue import JOURNALLED
from interlock.wire.access import Issued, Role

HOUR = timedelta(hours=1)


@pytest.fixture
async def house() -> AsyncIterator[House]:
    one = House()
    await one.store.open()
    yield one
    await one.store.close()


async def lets_in(house: House, issued: Issued) -> bool:
    """Return whether a server that has not seen the token lately lets its holder in."""
    try:
        await TokenCheck(house.tokens, house.check._clock).principal_of(issued.token)
    except NotSignedIn:
        return False
    return True


async def journalled(house: House, token_id: str) -> list[tuple[str, str, str]]:
    entries = (await house.store.history(Key(TOKEN.name, token_id))).entries
    return [(step.event, step.source, step.target) for entry in entries for step in entry.note.steps]


async def test_after_a_rotation_both_secrets_let_in_until_the_overlap_is_over(house: House) -> None:
    old = await house.tokens.create("ci", Role.SUBMITTER, queues=("mail",))
    new = await house.tokens.rotate("ci", overlap=HOUR, actor="ann", reason="every quarter")
    assert new.token != old.token
    assert (new.view.id, new.view.name, new.view.role, new.view.queues) == (
        old.view.id,
        "ci",
        Role.SUBMITTER,
        ("mail",),
    )
    assert (new.view.state, new.view.old_until) == ("rotating", house.clock() + HOUR)
    assert await lets_in(house, old)
    assert await lets_in(house, new)
    house.jump(3_599)
    assert await lets_in(house, old)
    house.jump(1)
    assert not await lets_in(house, old), "by the store's clock, before any sweep"
    assert await lets_in(house, new)
    assert await house.tokens.sweep() == 1
    view = await house.tokens.get("ci")
    assert (view.state, view.old_until) == ("active", None)
    (record,) = await house.store.load([Key(TOKEN.name, view.id)])
    assert record is not None
    assert b"old_digest" not in record.body
    assert await journalled(house, view.id) == [
        ("rotate", "active", "rotating"),
        ("retire", "rotating", "active"),
    ]


async def test_by_default_the_old_secret_works_for_some_minutes(house: House) -> None:
    old = await house.tokens.create("ci", Role.VIEWER)
    await house.tokens.rotate("ci")
    house.jump(OVERLAP.seconds - 1)
    assert await lets_in(house, old)
    house.jump(1)
    assert not await lets_in(house, old)


async def test_without_an_overlap_the_old_secret_ends_at_once(house: House) -> None:
    old = await house.tokens.create("ci", Role.VIEWER)
    new = await house.tokens.rotate("ci", overlap=timedelta(0))
    assert new.view.state == "active"
    assert not await lets_in(house, old)
    assert await lets_in(house, new)
    assert await journalled(house, old.view.id) == [("rotate_at_once", "active", "active")]


async def test_a_second_rotation_ends_the_first_secret_and_keeps_the_second_for_the_overlap(
    house: House,
) -> None:
    first = await house.tokens.create("ci", Role.VIEWER)
    second = await house.tokens.rotate("ci", overlap=HOUR)
    third = await house.tokens.rotate("ci", overlap=HOUR)
    assert [await lets_in(house, each) for each in (first, second, third)] == [False, True, True]
    fourth = await house.tokens.rotate("ci", overlap=timedelta(0))
    assert [await lets_in(house, each) for each in (second, third, fourth)] == [False, False, True]


async def test_a_new_secret_works_at_once_where_the_old_one_is_remembered(house: House) -> None:
    old = await house.tokens.create("ci", Role.VIEWER)
    await house.check.principal_of(old.token)
    new = await house.tokens.rotate("ci", overlap=HOUR)
    assert (await house.check.principal_of(new.token)).name == "ci"
    assert (await house.check.principal_of(old.token)).name == "ci"
    loads = house.store.loads
    for _ in range(10):
        await house.check.principal_of(new.token)
        await house.check.principal_of(old.token)
    assert house.store.loads == loads


async def test_a_rotation_renews_the_lifetime_and_the_old_secret_keeps_its_own(house: House) -> None:
    old = await house.tokens.create("ci", Role.VIEWER, lasts=timedelta(days=30))
    house.jump(29.5 * 86_400)
    new = await house.tokens.rotate("ci", overlap=timedelta(days=7))
    assert new.view.expires_at == house.clock() + timedelta(days=30)
    assert new.view.old_until == old.view.expires_at
    house.jump(0.5 * 86_400)
    assert not await lets_in(house, old)
    assert await lets_in(house, new)
    await house.tokens.sweep()
    house.jump(29.5 * 86_400)
    assert not await lets_in(house, new)
    await house.tokens.sweep()
    assert (await house.tokens.get("ci")).state == "expired"


async def test_a_token_that_is_rotating_can_be_revoked_with_both_its_secrets(house: House) -> None:
    old = await house.tokens.create("ci", Role.VIEWER)
    new = await house.tokens.rotate("ci", overlap=HOUR)
    assert await house.tokens.any()
    await house.check.principal_of(old.token)
    assert (await house.tokens.revoke("ci")).state == "revoked"
    assert not await lets_in(house, old)
    assert not await lets_in(house, new)
    house.jump(BELIEVED_S + 0.1)
    with pytest.raises(NotSignedIn):
        await house.check.principal_of(old.token)
    with pytest.raises(TransitionRefused):
        await house.tokens.rotate("ci")
    assert await house.tokens.sweep() == 0


@pytest.mark.parametrize("overlap", [timedelta(seconds=-1), timedelta(days=31)])
async def test_an_overlap_that_cannot_be_is_refused(house: House, overlap: timedelta) -> None:
    await house.tokens.create("ci", Role.VIEWER)
    with pytest.raises(InvalidToken):
        await house.tokens.rotate("ci", overlap=overlap)
    with pytest.raises(UnknownToken):
        await house.tokens.rotate("nobody")
    assert (await house.tokens.get("ci")).rotated_at is None


async def test_only_digests_of_both_secrets_are_kept(house: House) -> None:
    issued = [await house.tokens.create("ci", Role.VIEWER, request_id="c")]
    issued.append(await house.tokens.rotate("ci", overlap=HOUR, request_id="r"))
    (record,) = await house.store.load([Key(TOKEN.name, issued[0].view.id)])
    recalled = [await house.store.recall(each) for each in ("c", "r")]
    kept = repr(record) + repr(await house.store.feed()) + repr(recalled) + repr(issued)
    for each in issued:
        secret = read_secret(each.token)
        assert secret is not None
        assert secret.secret not in kept


async def test_a_repeated_request_makes_no_second_secret_and_does_not_show_the_first(house: House) -> None:
    made = await house.tokens.create("ci", Role.VIEWER, request_id="c")
    with pytest.raises(SecretShownOnce, match="shown once"):
        await house.tokens.create("ci", Role.VIEWER, request_id="c")
    with pytest.raises(RequestIdReused):
        await house.tokens.create("ci", Role.ADMIN, request_id="c")
    rotated = await house.tokens.rotate("ci", request_id="r")
    with pytest.raises(SecretShownOnce):
        await house.tokens.rotate("ci", request_id="r")
    assert await lets_in(house, made)
    assert await lets_in(house, rotated)
    assert len(await house.tokens.list(ended=True)) == 1
    await house.tokens.revoke("ci", request_id="v")
    assert (await house.tokens.revoke("ci", request_id="v")).state == "revoked"


async def test_exactly_one_of_several_concurrent_token_creations_with_the_same_name_succeeds(
    house: House,
) -> None:
    made = await asyncio.gather(
        *(house.tokens.create("ci", Role.VIEWER) for _ in range(4)), return_exceptions=True
    )
    kept = [each for each in made if isinstance(each, Issued)]
    assert len(kept) == 1
    assert all(isinstance(each, InvalidToken) for each in made if each is not kept[0])
    assert await lets_in(house, kept[0])
    assert [view.id for view in await house.tokens.list()] == [kept[0].view.id]


# When it was used last


async def test_the_last_use_is_stored_with_time_and_address_beside_the_requests(house: House) -> None:
    issued = await house.tokens.create("ci", Role.VIEWER)
    assert (await house.tokens.get("ci")).used_at is None
    entries = len((await house.store.feed()).entries)
    house.jump(5)
    for _ in range(20):
        await house.check.principal_of(issued.token, "192.0.2.7")
    used_at = house.clock()
    version = (await house.store.load([Key(TOKEN.name, issued.view.id)]))[0]
    house.jump(10)
    assert await house.check.store_uses() == 1
    view = await house.tokens.get("ci")
    assert view.used_at is not None
    assert abs((view.used_at - used_at).total_seconds()) < 1
    assert (view.used_from, view.state) == ("192.0.2.7", "active")
    (after,) = await house.store.load([Key(TOKEN.name, issued.view.id)])
    assert version is not None
    assert after is not None
    assert after.version == version.version + 1, "twenty uses are one write"
    assert len((await house.store.feed()).entries) == entries, "a use is no news for the journal"
    assert after.deadline_at == issued.view.expires_at


async def test_a_use_is_stored_at_most_once_a_minute_and_none_is_lost(house: House) -> None:
    issued = await house.tokens.create("ci", Role.VIEWER)
    await house.check.principal_of(issued.token, "192.0.2.1")
    assert await house.check.store_uses() == 1
    house.jump(USES_EVERY_S / 2)
    await house.check.principal_of(issued.token, "192.0.2.2")
    assert await house.check.store_uses() == 0
    assert (await house.tokens.get("ci")).used_from == "192.0.2.1"
    house.jump(USES_EVERY_S / 2)
    assert await house.check.store_uses() == 1
    assert (await house.tokens.get("ci")).used_from == "192.0.2.2"
    house.jump(USES_EVERY_S)
    assert await house.check.store_uses() == 0, "nothing was used since"


async def test_of_two_servers_the_later_use_stays(house: House) -> None:
    issued = await house.tokens.create("ci", Role.VIEWER)
    other = TokenCheck(house.tokens, house.check._clock, monotonic=lambda: house.seconds)
    await other.principal_of(issued.token, "192.0.2.1")
    house.jump(20)
    await house.check.principal_of(issued.token, "192.0.2.2")
    await house.check.store_uses()
    await other.store_uses()
    assert (await house.tokens.get("ci")).used_from == "192.0.2.2"


async def test_a_use_is_not_written_over_a_token_that_was_revoked_or_removed(house: House) -> None:
    issued = await house.tokens.create("ci", Role.VIEWER)
    await house.check.principal_of(issued.token, "192.0.2.1")
    await house.tokens.revoke("ci")
    await house.check.store_uses()
    view = await house.tokens.get("ci")
    assert (view.state, view.used_at) == ("revoked", None)
    found = await audit(house.store, JOURNALLED, [TOKEN.name])
    assert found.faults == []


async def test_a_refused_token_is_no_use(house: House) -> None:
    issued = await house.tokens.create("ci", Role.VIEWER)
    wrong = issued.token[:-1] + ("0" if issued.token[-1] != "0" else "1")
    with pytest.raises(NotSignedIn):
        await house.check.principal_of(wrong, "192.0.2.66")
    assert await house.check.store_uses() == 0
