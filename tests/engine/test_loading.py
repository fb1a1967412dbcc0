"""What is asked for at one moment is asked together, and everybody has an answer of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from interlock.engine.loader import MOST, GroupLoad
from interlock.errors import StoreUnavailable
from interlock.store.memory import MemoryStore
from interlock.store.records import Change, Commit, Key, Record
from interlock.testing.store_contract.builders import CATALOGUE, PARCEL


class Asked(MemoryStore):
    """A store that counts what it is asked."""

    def __init__(self) -> None:
        super().__init__(CATALOGUE)
        self.questions: list[int] = []
        self.away = False

    async def load(self, keys: Sequence[Key]) -> list[Record | None]:
        self.questions.append(len(keys))
        await asyncio.sleep(0)
        if self.away:
            raise StoreUnavailable("It is away.")
        return await super().load(keys)


def key(number: int) -> Key:
    return Key(PARCEL.name, f"i{number}")


@pytest.fixture
async def store() -> Asked:
    counting_store = Asked()
    state = str(PARCEL.initial)
    changes = [
        Change(kind=PARCEL.name, id=key(number).id, expected=0, state=state, body=b"{}")
        for number in range(10)
    ]
    await counting_store.commit([Commit(changes=(change,)) for change in changes])
    return counting_store


async def test_callers_of_one_moment_are_one_question_and_each_has_its_own_answer(store: Asked) -> None:
    loads = GroupLoad(lambda: store)
    found = await asyncio.gather(*(loads.load([key(n), key(99), key(n)]) for n in range(10)))
    assert store.questions == [11]
    for number, (one, none, again) in enumerate(found):
        assert one is not None
        assert (one.key, none, again) == (key(number), None, one)


async def test_loading_nothing_does_not_reach_the_store(store: Asked) -> None:
    assert await GroupLoad(lambda: store).load([]) == []
    assert store.questions == []


async def test_a_load_of_too_many_keys_is_split_into_several_store_calls(store: Asked) -> None:
    found = await GroupLoad(lambda: store).load([key(number) for number in range(MOST + 1)])
    assert store.questions == [MOST, 1]
    assert [record is not None for record in found] == [number < 10 for number in range(MOST + 1)]


async def test_an_unavailable_store_fails_all_waiting_loads_and_the_next_one_is_new(
    store: Asked,
) -> None:
    loads, store.away = GroupLoad(lambda: store), True
    errors = await asyncio.gather(*(loads.load([key(n)]) for n in range(3)), return_exceptions=True)
    assert [type(each) for each in errors] == [StoreUnavailable] * 3
    store.away = False
    assert (await loads.load([key(1)]))[0] is not None


async def test_a_cancelled_caller_does_not_affect_the_other_callers_of_a_group_load(store: Asked) -> None:
    loads = GroupLoad(lambda: store)
    first, second = (asyncio.create_task(loads.load([key(n)])) for n in (1, 2))
    await asyncio.sleep(0)
    first.cancel()
    (record,) = await second
    assert record is not None
    assert record.key == key(2)
    with pytest.raises(asyncio.CancelledError):
        await first
