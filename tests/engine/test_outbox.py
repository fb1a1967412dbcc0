"""The outbox: told at least once, never without its cause, and given up on in the open."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import pick

from interlock.engine import outbox
from interlock.engine.aggregate import Columns
from interlock.engine.committer import DirectCommitter
from interlock.engine.outbox import (
    MESSAGE,
    DeliveryPolicy,
    OutboxMessage,
    TopicHandler,
    deliver,
    outgoing,
    recover,
)
from interlock.errors import StoreUnavailable
from interlock.machine import Event
from interlock.store.catalogue import catalogue_of
from interlock.store.memory import MemoryStore
from interlock.store.records import Commit, Key, Record, Work

M = Key("message", "m")
POSTAGE = DeliveryPolicy(max_tries=3)


@pytest.fixture
def post(clock: Any) -> MemoryStore:
    return MemoryStore(catalogue_of([MESSAGE]), clock=clock)


async def write(post: MemoryStore, topic: str = "bell") -> None:
    now = await post.now()
    await post.commit([Commit(changes=(outgoing("m", topic, b'{"ring": 3}', now),))])


async def message(post: MemoryStore) -> Record:
    (record,) = await post.load([M])
    assert record is not None
    return record


async def run(post: MemoryStore, handler: TopicHandler) -> int:
    return await deliver(post, DirectCommitter(post), {"bell": handler}, POSTAGE)


async def test_a_message_is_delivered_with_its_payload_and_only_once(post: MemoryStore) -> None:
    await write(post)
    payloads: list[bytes] = []

    async def ring(payload: bytes) -> None:
        payloads.append(payload)

    assert await run(post, ring) == 1
    assert await run(post, ring) == 0
    assert payloads == [b'{"ring": 3}']
    assert (await message(post)).state == "sent"


async def test_a_failed_delivery_is_retried_with_backoff_and_its_error_is_recorded(
    post: MemoryStore, clock: Any
) -> None:
    await write(post)

    async def ring(_: bytes) -> None:
        raise OSError("no bell")

    pauses = []
    for _ in range(POSTAGE.max_tries):
        assert await run(post, ring) == 1
        record = await message(post)
        if record.ready_at is not None:
            assert record.state == "waiting"
            assert await run(post, ring) == 0, "it is not tried again before its time"
            pauses.append((record.ready_at - clock()).total_seconds())
            clock.jump(pauses[-1])
    assert pauses == [1, 2]
    record = await message(post)
    assert record.state == "dead"
    assert msgspec.json.decode(record.body)["last_error"] == "OSError: no bell"
    reasons = [entry.note.reason for entry in (await post.history(M)).entries if entry.note.reason]
    assert reasons == ["OSError: no bell"] * 3


async def test_a_message_whose_delivery_was_interrupted_is_delivered_again_after_its_deadline(
    post: MemoryStore, clock: Any
) -> None:
    await write(post)

    async def dies(_: bytes) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await run(post, dies)
    assert (await message(post)).state == "sending"
    assert await recover(post) == 0
    clock.jump(POSTAGE.delivery_s)
    assert await recover(post) == 1
    payloads: list[bytes] = []

    async def ring(payload: bytes) -> None:
        payloads.append(payload)

    assert await run(post, ring) == 1
    assert len(payloads) == 1
    assert (await message(post)).state == "sent"


async def test_the_journal_records_every_step_of_a_message_as_for_other_records(
    post: MemoryStore, clock: Any
) -> None:
    now = await post.now()
    taken = outgoing("m", "bell", b"null", now, taken_until=now)
    await post.commit([Commit(changes=(taken,))])
    clock.jump(1)
    assert await recover(post) == 1

    async def ring(_: bytes) -> None:
        """Hear it."""

    assert await run(post, ring) == 1
    steps = [step for entry in (await post.history(M)).entries for step in entry.note.steps]
    assert [step.event for step in steps] == ["take", "courier_lost", "take", "delivered"]
    assert {step.entity for step in steps} == {""}, "it is the record itself that moves"


async def test_a_process_takes_only_topics_that_it_can_deliver(post: MemoryStore) -> None:
    await write(post, topic="drum")

    async def ring(_: bytes) -> None:
        raise AssertionError("a drum is no bell")

    assert await run(post, ring) == 0
    assert (await message(post)).state == "waiting"


async def test_a_delivery_during_an_outage_of_the_store_loses_no_message(
    post: MemoryStore, clock: Any
) -> None:
    await write(post)

    class Away:
        async def commit(self, _: Commit) -> Any:
            raise StoreUnavailable("gone")

        async def commit_all(self, _: Sequence[Work]) -> Any:
            raise StoreUnavailable("gone")

    async def ring(_: bytes) -> None:
        return

    async def no_sleep(_: float) -> None:
        return

    with pytest.raises(StoreUnavailable):
        await deliver(post, Away(), {"bell": ring}, POSTAGE, sleep=no_sleep)
    clock.jump(POSTAGE.delivery_s)
    assert await recover(post) == 1
    assert await run(post, ring) == 1
    assert (await message(post)).state == "sent"


# Messages of one state are decided once

AT = datetime(2026, 11, 18, 12, tzinfo=UTC)
EVENTS = (outbox.take, outbox.delivered, outbox.failed, outbox.gave_up, outbox.courier_lost)
MESSAGES = st.builds(
    Record,
    kind=st.just("message"),
    id=st.sampled_from(["m", "n"]),
    state=st.sampled_from(["waiting", "sending", "sent", "dead", "dropped"]),
    version=st.integers(1, 5),
    body=st.sampled_from([b'{"payload":3,"tries":0,"last_error":""}', b'{"payload":{},"tries":2}']),
    parent=st.sampled_from([None, "p"]),
    queue=st.sampled_from(["bell", "horn"]),
    labels=st.sampled_from([(), ("a",)]),
    priority=st.sampled_from([0, 3]),
    ready_at=st.sampled_from([None, AT]),
    deadline_at=st.sampled_from([None, AT + timedelta(seconds=9)]),
    created_at=st.just(AT),
    updated_at=st.sampled_from([AT, AT + timedelta(seconds=1)]),
)


@settings(max_examples=pick(200, 1_000), deadline=None, derandomize=True)
@given(
    MESSAGES,
    st.sampled_from(EVENTS),
    st.sampled_from([None, OutboxMessage(msgspec.Raw(b"1"), 3, "why")]),
    st.sampled_from([None, AT + timedelta(seconds=5)]),
    st.sampled_from(["", "late"]),
    st.sampled_from(["", "m1"]),
)
def test_a_message_moves_as_its_table_decides_about_it_alone(
    record: Record,
    event: Event,
    kept: OutboxMessage | None,
    ready_at: datetime | None,
    reason: str,
    commit_id: str,
) -> None:
    now = AT + timedelta(minutes=1)
    alone = outbox._MESSAGES.lasting(delivery_s=7.0).of(record, now, kept)
    if refused := alone.send(event):
        with pytest.raises(type(refused.error())):
            outbox._STEPS.step(record, event, now)
        return
    if not alone.taken:
        return  # the table ignores it
    alone.place(ready_at=ready_at)
    wanted = alone.change(commit_id=commit_id, actor="courier", reason=reason)
    found = outbox._STEPS.lasting(delivery_s=7.0).step(
        record,
        event,
        now,
        None if kept is None else msgspec.json.encode(kept),
        commit_id=commit_id,
        actor="courier",
        reason=reason,
        ready_at=ready_at,
    )
    assert found == wanted


@pytest.mark.parametrize("until", [None, AT + timedelta(minutes=2)])
@pytest.mark.parametrize("commit_id", ["", "m1"])
def test_a_new_message_is_one_that_its_table_makes(commit_id: str, until: datetime | None) -> None:
    columns = Columns(queue="bell", ready_at=AT if until is None else None)
    messages = outbox._MESSAGES if until is None else outbox._MESSAGES.lasting(delivery_s=120.0)
    alone = messages.new("m", OutboxMessage(msgspec.Raw(b"[1]")), AT, columns)
    if until is not None:
        alone.must(outbox.take)
    assert outgoing("m", "bell", b"[1]", AT, commit_id=commit_id, taken_until=until) == alone.change(
        commit_id=commit_id
    )
