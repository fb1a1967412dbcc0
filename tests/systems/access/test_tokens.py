"""Tokens: made once, kept hashed, revoked, expired, and checked with one look-up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import pytest

from interlock.engine.audit import audit
from interlock.engine.clock import StoreClock
from interlock.engine.committer import DirectCommitter
from interlock.engine.unit_of_work import Engine
from interlock.errors import (
    AlreadyThere,
    InvalidToken,
    NotAllowed,
    NotSignedIn,
    TerminalState,
    TransitionRefused,
    UnknownToken,
)
from interlock.store.memory import MemoryStore
from interlock.store.records import Key, Record
from interlock.systems.access.authentication import BELIEVED_S, TokenCheck
from interlock.systems.access.principals import (
    LOCAL,
    Principal,
)
from interlock.systems.access.tokens import (
    TOKEN,
    Tokens,
    read_secret,
)
from interlock.systems.catalogue import CATALOGUE, JOURNALLED
from interlock.testing.clocks import JumpingClock
from interlock.wire.access import Role
from interlock.wire.credentials import redacted


class CountingStore(MemoryStore):
    """Counts how often it is asked for records."""

    loads = 0

    async def load(self, keys: Sequence[Key]) -> list[Record | None]:
        self.loads += 1
        return await super().load(keys)


class House:
    """Tokens in memory, with clocks that jump."""

    def __init__(self) -> None:
        self.clock = JumpingClock()
        self.seconds = 0.0
        self.store = CountingStore(CATALOGUE, clock=self.clock)
        store_clock = StoreClock(self.store, resync_s=0.0, monotonic=lambda: self.seconds)
        engine = Engine(self.store, DirectCommitter(self.store), store_clock)
        self.tokens = Tokens(engine)
        self.check = TokenCheck(self.tokens, store_clock, monotonic=lambda: self.seconds)

    def jump(self, seconds: float) -> None:
        self.seconds += seconds
        self.clock.jump(seconds)


@pytest.fixture
async def house() -> AsyncIterator[House]:
    one = House()
    await one.store.open()
    yield one
    await one.store.close()


async def test_a_token_stands_for_its_name_role_and_queues(house: House) -> None:
    issued = await house.tokens.create("ci", Role.SUBMITTER, queues=("b", "a", "b"), actor="ann")
    principal = await house.check.principal_of(issued.token)
    assert (principal.name, principal.roles, principal.queues) == ("ci", (Role.SUBMITTER,), frozenset("ab"))
    assert issued.view.queues == ("a", "b")


async def test_only_a_digest_of_the_secret_is_kept(house: House) -> None:
    issued = await house.tokens.create("ci", Role.VIEWER)
    secret = read_secret(issued.token)
    assert secret is not None
    assert len(secret.secret) * 4 == 256
    (record,) = await house.store.load([Key(TOKEN.name, secret.id)])
    assert record is not None
    feed = await house.store.feed()
    kept = record.body.decode() + repr(feed) + repr(await house.tokens.list()) + repr(issued)
    assert secret.secret not in kept
    assert secret.digest in record.body.decode()


async def test_two_tokens_never_have_the_same_secret(house: House) -> None:
    made = {(await house.tokens.create(f"t{n}", Role.VIEWER)).token for n in range(20)}
    assert len({token.rpartition("_")[2] for token in made}) == 20


async def test_a_revoked_token_is_refused_once_its_cache_entry_has_expired(house: House) -> None:
    issued = await house.tokens.create("ci", Role.VIEWER)
    await house.check.principal_of(issued.token)
    view = await house.tokens.revoke("ci", actor="ann", reason="lost")
    assert view.state == "revoked"
    house.jump(BELIEVED_S + 0.1)
    with pytest.raises(NotSignedIn):
        await house.check.principal_of(issued.token)
    entries = (await house.store.history(Key(TOKEN.name, view.id))).entries
    assert [(entry.note.actor, entry.note.reason) for entry in entries] == [
        ("", "ci (viewer)"),
        ("ann", "lost"),
    ]


async def test_a_token_expires_by_the_clock_of_the_store_and_the_sweep_marks_it_as_expired(
    house: House,
) -> None:
    issued = await house.tokens.create("ci", Role.VIEWER, lasts=timedelta(hours=1))
    house.jump(3_599)
    await house.check.principal_of(issued.token)
    house.jump(1)
    with pytest.raises(NotSignedIn):
        await house.check.principal_of(issued.token)
    assert await house.tokens.sweep() == 1
    assert await house.tokens.sweep() == 0
    assert [view.state for view in await house.tokens.list(ended=True)] == ["expired"]
    assert await house.tokens.list() == []


async def test_a_token_expires_after_90_days_unless_it_is_created_without_an_expiry(house: House) -> None:
    lasting = await house.tokens.create("lasting", Role.VIEWER, lasts=None)
    usual = await house.tokens.create("usual", Role.VIEWER)
    assert lasting.view.expires_at is None
    assert usual.view.expires_at == house.clock() + timedelta(days=90)
    house.jump(400 * 86_400)
    assert (await house.check.principal_of(lasting.token)).name == "lasting"


async def test_a_token_is_looked_up_in_the_store_once_and_then_cached_for_seconds(house: House) -> None:
    issued = await house.tokens.create("ci", Role.VIEWER)
    before = house.store.loads
    for _ in range(50):
        await house.check.principal_of(issued.token)
    assert house.store.loads == before + 1
    house.jump(BELIEVED_S)
    await house.check.principal_of(issued.token)
    assert house.store.loads == before + 2


async def test_an_unknown_token_is_looked_up_once_and_a_malformed_token_never(
    house: House,
) -> None:
    before = house.store.loads
    for text in ["il_0000000000000000_" + "0" * 64] * 20 + ["", "il_", "hello", "il_x_y", "il_" + "0" * 81]:
        with pytest.raises(NotSignedIn):
            await house.check.principal_of(text)
    assert house.store.loads == before + 1


async def test_a_name_belongs_to_one_active_token(house: House) -> None:
    first = await house.tokens.create("ci", Role.VIEWER)
    with pytest.raises(InvalidToken):
        await house.tokens.create("ci", Role.ADMIN)
    await house.tokens.revoke("ci")
    second = await house.tokens.create("ci", Role.ADMIN)
    assert first.view.id != second.view.id
    assert (await house.tokens.revoke("ci")).id == second.view.id


async def test_revoking_a_revoked_expired_or_unknown_token_is_refused_with_an_error(house: House) -> None:
    issued = await house.tokens.create("ci", Role.VIEWER)
    await house.tokens.revoke(issued.view.id)
    with pytest.raises(AlreadyThere):
        await house.tokens.revoke("ci")
    await house.tokens.create("brief", Role.VIEWER, lasts=timedelta(seconds=1))
    house.jump(2)
    await house.tokens.sweep()
    with pytest.raises(TerminalState):
        await house.tokens.revoke("brief")
    with pytest.raises(UnknownToken):
        await house.tokens.revoke("nobody")
    assert issubclass(AlreadyThere, TransitionRefused)


@pytest.mark.parametrize(
    ("name", "queues", "lasts"),
    [
        ("", (), None),
        ("a b", (), None),
        ("x" * 65, (), None),
        ("il_name", (), None),
        ("ok", ("",), None),
        ("ok", ("q" * 65,), None),
        ("ok", (), timedelta(0)),
        ("ok", (), timedelta(days=10_000)),
    ],
)
async def test_a_token_with_an_invalid_name_queue_or_lifetime_is_not_created(
    house: House, name: str, queues: tuple[str, ...], lasts: timedelta | None
) -> None:
    with pytest.raises(InvalidToken):
        await house.tokens.create(name, Role.VIEWER, queues=queues, lasts=lasts)
    assert await house.tokens.list(ended=True) == []


async def test_journal_and_records_of_tokens_agree(house: House) -> None:
    for name in ("a", "b", "c"):
        await house.tokens.create(name, Role.VIEWER, lasts=timedelta(hours=1) if name == "b" else None)
    await house.tokens.revoke("a")
    house.jump(3_601)
    await house.tokens.sweep()
    found = await audit(house.store, JOURNALLED, [TOKEN.name])
    assert (found.records, found.steps, found.faults) == (3, 2, [])


def test_text_with_a_token_in_it_is_made_harmless() -> None:
    token = "il_" + "0a" * 8 + "_" + "1b" * 32
    assert redacted(f"see {token}, and {token}!") == "see il_***, and il_***!"


def test_a_refused_principal_receives_an_error_with_the_missing_role_or_queue() -> None:
    viewer = Principal(name="ann", roles=(Role.VIEWER,), queues=frozenset({"mail"}))
    with pytest.raises(NotAllowed) as refused:
        viewer.need(Role.OPERATOR)
    assert refused.value.allowed == (Role.OPERATOR, Role.ADMIN)
    with pytest.raises(NotAllowed) as refused:
        viewer.need_queues(["mail", "builds"])
    assert refused.value.facts["queues"] == ["builds"]
    with pytest.raises(NotAllowed):
        viewer.need_everything("the journal")
    for role in Role:
        LOCAL.need(role)
    LOCAL.need_everything("anything")
