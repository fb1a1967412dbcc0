"""Sessions of browsers: opened with a token, kept hashed, over with the token or after half a day."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from tests.systems.access.test_tokens import House

from interlock.engine.audit import audit
from interlock.engine.clock import StoreClock
from interlock.engine.committer import DirectCommitter
from interlock.engine.retention import Retention, sweep_ended
from interlock.engine.unit_of_work import Engine
from interlock.errors import NotAllowed, NotSignedIn
from interlock.store.records import Key, Query
from interlock.systems.access.authentication import BELIEVED_S, LIFETIME, SESSION, Sessions, TokenCheck
from interlock.systems.access.tokens import Tokens, TokenSecret
from interlock.systems.catalogue import CATALOGUE, JOURNALLED
from interlock.wire.access import Role


class Hall(House):
    """Tokens and sessions in memory, with clocks that jump."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions = self.another()

    def another(self) -> Sessions:
        """Return sessions as another server sees them, which has read nothing yet."""
        clock = StoreClock(self.store, resync_s=0.0, monotonic=lambda: self.seconds)
        engine = Engine(self.store, DirectCommitter(self.store), clock)
        check = TokenCheck(Tokens(engine), clock, monotonic=lambda: self.seconds)
        return Sessions(engine, check, monotonic=lambda: self.seconds)

    async def sign_in(self, token: str) -> TokenSecret:
        """A session of a token."""
        return await self.sessions.open(await self.check.principal_of(token))

    async def opened(self, name: str = "ann", role: Role = Role.VIEWER) -> TokenSecret:
        """A session of a new token."""
        return await self.sign_in((await self.tokens.create(name, role)).token)


@pytest.fixture
async def hall() -> AsyncIterator[Hall]:
    one = Hall()
    await one.store.open()
    yield one
    await one.store.close()


async def refused(sessions: Sessions, secret: str) -> bool:
    """Return whether a session lets nobody in."""
    try:
        await sessions.principal_of(secret)
    except NotSignedIn:
        return True
    return False


async def test_a_session_stands_for_its_token_on_every_server(hall: Hall) -> None:
    opened = await hall.opened(role=Role.OPERATOR)
    for sessions in (hall.sessions, hall.another()):
        principal = await sessions.principal_of(opened.text)
        assert (principal.name, principal.roles) == ("ann", (Role.OPERATOR,))
        assert principal.token_id == (await hall.tokens.get("ann")).id


async def test_only_a_digest_of_the_secret_of_a_session_is_kept(hall: Hall) -> None:
    opened = await hall.opened()
    (record,) = (await hall.store.find(Query(kind=SESSION.name))).records
    assert opened.secret.encode() not in record.body
    assert opened.secret not in repr(opened) + str(opened)


async def test_no_two_sessions_have_the_same_secret_or_the_tokens(hall: Hall) -> None:
    issued = await hall.tokens.create("ann", Role.VIEWER)
    secrets = {(await hall.sign_in(issued.token)).secret for _ in range(20)}
    assert len(secrets) == 20
    assert not {secret for secret in secrets if secret == issued.token[-64:]}


async def test_a_token_is_no_session_and_a_session_no_token(hall: Hall) -> None:
    issued = await hall.tokens.create("ann", Role.VIEWER)
    opened = await hall.sign_in(issued.token)
    assert await refused(hall.sessions, issued.token)
    assert await refused(hall.sessions, issued.token.replace("il_", "is_"))
    for text in (opened.text, opened.text.replace("is_", "il_")):
        with pytest.raises(NotSignedIn):
            await hall.check.principal_of(text)


async def test_a_runner_has_nothing_to_sign_in_for(hall: Hall) -> None:
    with pytest.raises(NotAllowed):
        await hall.opened(role=Role.RUNNER)


async def test_a_closed_session_ends_at_once_on_this_server_and_within_seconds_on_others(hall: Hall) -> None:
    opened, there = await hall.opened(), hall.another()
    await there.principal_of(opened.text)
    await hall.sessions.close(opened.text)
    assert await refused(hall.sessions, opened.text)
    assert not await refused(there, opened.text)  # believed, for as long as it is said
    hall.jump(BELIEVED_S + 0.1)
    assert await refused(there, opened.text)


async def test_a_session_is_ended_by_its_secret_and_not_by_its_id(hall: Hall) -> None:
    opened = await hall.opened()
    for text in (opened.text[:-64] + "0" * 64, opened.text[:-1], ""):
        await hall.sessions.close(text)
    assert not await refused(hall.another(), opened.text)


async def test_a_session_is_over_within_seconds_of_its_token_on_every_server(hall: Hall) -> None:
    for name in ("revoked", "rotated"):
        opened, there = await hall.opened(name), hall.another()
        await there.principal_of(opened.text)
        if name == "revoked":
            await hall.tokens.revoke(name)
        else:
            await hall.tokens.rotate(name, overlap=timedelta(0))
        hall.jump(BELIEVED_S + 0.1)
        assert await refused(there, opened.text), name
        assert await refused(hall.sessions, opened.text), name


async def test_a_session_lives_as_long_as_the_old_secret_of_a_rotated_token(hall: Hall) -> None:
    opened = await hall.opened()
    await hall.tokens.rotate("ann", overlap=timedelta(hours=1))
    hall.jump(3_599)
    assert not await refused(hall.sessions, opened.text)
    hall.jump(2)
    assert await refused(hall.sessions, opened.text)


async def test_a_session_is_over_after_its_time_even_before_the_sweep(hall: Hall) -> None:
    opened = await hall.opened()
    hall.jump(LIFETIME.seconds - 1)
    assert not await refused(hall.sessions, opened.text)
    hall.jump(2)
    assert await refused(hall.sessions, opened.text)
    assert await hall.sessions.sweep() == 1
    assert await hall.sessions.sweep() == 0
    assert await refused(hall.sessions, opened.text)
    await hall.sessions.close(opened.text)  # it is over already


async def test_one_look_up_is_enough_for_many_requests(hall: Hall) -> None:
    opened = await hall.opened()
    await hall.sessions.principal_of(opened.text)
    before = hall.store.loads
    for _ in range(100):
        await hall.sessions.principal_of(opened.text)
        await refused(hall.sessions, "is_" + "0" * 81)
        await refused(hall.sessions, opened.text[:-64] + "0" * 64)
    assert hall.store.loads == before


async def test_a_principal_can_be_checked_again_without_the_secret_of_its_session_or_token(
    hall: Hall,
) -> None:
    issued = await hall.tokens.create("ann", Role.VIEWER)
    opened = await hall.sign_in(issued.token)
    by_token = await hall.check.principal_of(issued.token)
    by_session = await hall.sessions.principal_of(opened.text)
    for principal in (by_token, by_session):
        assert await hall.sessions.is_still(principal)
        assert issued.token[-64:] not in repr(principal)
        assert opened.secret not in repr(principal)
    await hall.sessions.close(opened.text)
    assert await hall.sessions.is_still(by_token)
    assert not await hall.sessions.is_still(by_session)
    await hall.tokens.revoke("ann")
    hall.jump(BELIEVED_S + 0.1)
    assert not await hall.sessions.is_still(by_token)


async def test_the_journal_of_sessions_holds_and_ended_ones_are_pruned(hall: Hall) -> None:
    out, over = await hall.opened("ann"), await hall.opened("bob")
    await hall.sessions.close(out.text)
    hall.jump(LIFETIME.seconds + 1)
    await hall.sessions.sweep()
    await hall.opened("carol")
    found = await audit(hall.store, JOURNALLED, [SESSION.name])
    assert (found.records, found.steps, found.faults) == (3, 2, [])
    hall.jump(31 * 86_400)
    pruned = await sweep_ended(hall.store, CATALOGUE, Retention())
    assert pruned[SESSION.name].records == 2
    for text in (out.text, over.text):
        assert (await hall.store.load([Key(SESSION.name, text[3:19])])) == [None]
        assert await refused(hall.another(), text)
