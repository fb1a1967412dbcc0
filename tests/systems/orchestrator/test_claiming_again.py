"""A claim under a name is answered once, by however many it is heard; nobody else learns its secrets."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.systems.orchestrator.house import TTL_S, House, beat, done, release

from interlock.errors import ClaimOver, RequestIdReused
from interlock.systems.orchestrator.grants import (
    claim_key_of,
)
from interlock.systems.orchestrator.tokens import read_token
from interlock.wire.runner import ClaimRequest, Grant, StaleCode


def tokens(grants: list[Grant]) -> list[str]:
    return [grant.token for grant in grants]


async def test_two_servers_that_receive_the_same_claim_at_once_return_the_same_grants(house: House) -> None:
    other = await house.neighbour()
    for _ in range(10):
        await house.submit()
    first, second = await asyncio.gather(
        house.claim(limit=3, claim_id="c"), other.claim(limit=3, claim_id="c")
    )
    assert len(first) == 3
    assert tokens(first) == tokens(second)
    assert len(await house.claim(limit=100)) == 7, "the others were not touched"


async def test_a_repeated_claim_on_another_server_returns_the_same_grant_and_renews_its_lease(
    house: House,
) -> None:
    await house.submit(input=msgspec.Raw(b'{"a":1}'))
    (first,) = await house.claim(claim_id="c")
    house.clock.jump(TTL_S / 2)
    (again,) = await (await house.neighbour()).claim(claim_id="c")
    assert again == msgspec.structs.replace(first, expires_at=again.expires_at)
    assert (again.expires_at - first.expires_at).total_seconds() == pytest.approx(TTL_S / 2)
    await house.heard(done(again))


async def test_a_repeated_claim_returns_an_unacknowledged_grant_unchanged(house: House) -> None:
    await house.submit()
    first = await house.claim(claim_id="c", acknowledge=False)
    assert await house.claim(claim_id="c", acknowledge=False) == first
    assert not first[0].acknowledged


async def test_a_repeated_claim_returns_only_the_grants_whose_leases_are_live(house: House) -> None:
    for _ in range(3):
        await house.submit()
    a, b, c = await house.claim(claim_id="c")
    await house.heard(done(a))
    assert tokens(await house.claim(claim_id="c")) == tokens([b, c])
    await house.heard(release(b))
    await house.heard(done(c))
    with pytest.raises(ClaimOver):
        await house.claim(claim_id="c")
    assert [grant.attempt for grant in await house.claim(claim_id="d")] == [2]


async def test_a_repeated_claim_does_not_return_an_expired_grant_even_before_a_sweep(house: House) -> None:
    await house.submit()
    (grant,) = await house.claim(claim_id="c")
    house.clock.jump(TTL_S)
    assert await house.claim(claim_id="c") == [], "by then it is a new claim, and there is nothing for it"
    assert (await house.stale(done(grant))).code is StaleCode.LEASE_EXPIRED
    assert [again.attempt for again in await house.claim(claim_id="c")] == [2]


async def test_a_shard_that_ran_out_does_not_keep_another_from_being_given_again(house: House) -> None:
    await house.submit(worker_count=2)
    (early,) = await house.claim(limit=1)
    house.clock.jump(TTL_S / 2)
    (late,) = await house.claim(limit=1, claim_id="c")
    house.clock.jump(TTL_S / 2 + 1)
    assert tokens(await house.claim(limit=1, claim_id="c")) == tokens([late])
    assert (await house.stale(done(early))).code is StaleCode.LEASE_EXPIRED


async def test_a_name_belongs_to_one_runner_and_to_one_claim(house: House) -> None:
    for _ in range(2):
        await house.submit()
    mine = await house.claim("mine", limit=1, claim_id="c")
    yours = await house.claim("yours", limit=1, claim_id="c")
    assert len({grant.job_id for grant in (*mine, *yours)}) == 2
    for changed in ({"limit": 2}, {"limit": 1, "acknowledge": False}, {"limit": 1, "labels": ("gpu",)}):
        with pytest.raises(RequestIdReused):
            await house.claim("mine", claim_id="c", **changed)


async def test_a_claim_without_a_name_leaves_no_record_of_itself(house: House) -> None:
    await house.submit()
    await house.claim()
    assert (await house.store.status()).requests == 0


async def test_a_claim_that_found_nothing_may_be_made_again(house: House) -> None:
    assert await house.claim(claim_id="c") == []
    await house.submit()
    assert len(await house.claim(claim_id="c")) == 1


async def test_the_store_holds_neither_the_name_nor_a_secret_and_the_name_alone_opens_nothing() -> None:
    houses = [await House().open() for _ in range(2)]
    secrets = []
    for house in houses:
        await house.submit()
        (grant,) = await house.claim(claim_id="a-name-of-this-claim")
        token = read_token(grant.token)
        assert token is not None
        secrets.append(token.secret)
        request = ClaimRequest(runner_id="runner#1", limit=10, claim_id="a-name-of-this-claim")
        recorded = await house.store.recall(claim_key_of(request).id)
        assert recorded is not None
        kept = msgspec.json.encode(recorded) + (await house.record(grant.job_id)).body
        for secret in (b"a-name-of-this-claim", token.secret.encode()):
            assert secret not in kept
    assert secrets[0] != secrets[1], "the same names, another salt"
    for house in houses:
        await house.close()


# Giving back what nobody took


async def test_an_undelivered_grant_is_requeued_without_counting_as_a_loss(house: House) -> None:
    job_id = await house.submit()
    grants = await house.claim(claim_id="c")
    await house.port.services.orchestrator.take_back("runner#1", grants)
    view = await house.view(job_id)
    assert (view.losses, [attempt.state for attempt in view.attempts]) == (0, ["STALE", "QUEUED"])


@pytest.mark.parametrize("acknowledge", [True, False])
async def test_a_server_does_not_take_back_a_grant_that_another_server_has_delivered(
    house: House, acknowledge: bool
) -> None:
    job_id = await house.submit()
    grants = await house.claim(claim_id="c", acknowledge=acknowledge)
    house.clock.jump(1)
    await (await house.neighbour()).claim(claim_id="c", acknowledge=acknowledge)
    await house.port.services.orchestrator.take_back("runner#1", grants)
    view = await house.view(job_id)
    assert view.attempts[0].lease is not None
    assert view.attempts[0].lease.state == ("ACTIVE" if acknowledge else "GRANTED")


async def test_a_grant_is_not_taken_back_after_its_runner_has_sent_a_heartbeat(house: House) -> None:
    await house.submit()
    grants = await house.claim()
    house.clock.jump(1)
    await house.heard(beat(grants[0]))
    await house.port.services.orchestrator.take_back("runner#1", grants)
    await house.heard(done(grants[0]))
