"""What the tables do not allow, the database itself refuses, also from a bare SQL shell.

Legal statements are run beside the illegal ones, so that a refusal is one of the table and not of
a misspelt statement.
"""

from __future__ import annotations

import pytest

from interlock.store.contract import Store
from interlock.testing.store_contract.builders import creation, look, made, see
from interlock.testing.store_contract.catalogue import DELIVERED, LOST, PACKED, SENT
from interlock.testing.store_contract.opener import StoreOpener, needs


@needs("sql")
async def test_the_store_says_that_its_database_enforces_the_tables(store: Store) -> None:
    assert store.capabilities.enforces_tables


@needs("sql")
async def test_records_can_be_read_from_a_shell(store: Store, opener: StoreOpener) -> None:
    await made(store, creation("a", SENT))
    table = opener.record_table()
    rows = await opener.sql(f"SELECT kind, id, state, version FROM {table.name}")
    assert [[str(value) for value in row] for row in rows] == [["parcel", "a", "sent", "1"]]


@needs("sql")
@pytest.mark.parametrize("state", ["sent", "delivered", "returned"])
async def test_a_legal_move_can_be_made_from_a_shell(store: Store, opener: StoreOpener, state: str) -> None:
    await made(store, creation("a"))
    await opener.sql(_moving("a", state, opener))
    assert (await see(store, "a")).state == state


@needs("sql")
@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("packed", "mislaid"),
        ("packed", ""),
        ("packed", "PACKED"),
        ("sent", "packed"),
        ("delivered", "sent"),
        ("delivered", "lost"),
        ("delivered", "returned"),
        ("lost", "sent"),
        ("returned", "lost"),
        ("packed", "written"),
    ],
)
async def test_an_illegal_move_is_refused_from_a_shell(
    store: Store, opener: StoreOpener, source: str, target: str
) -> None:
    [record] = await made(store, creation("a", source))
    await opener.sql(_moving("a", source, opener))
    with pytest.raises(Exception):  # noqa: B017, PT011
        await opener.sql(_moving("a", target, opener))
    assert await see(store, "a") == record


@needs("sql")
async def test_a_declared_exit_can_be_taken_from_a_shell(store: Store, opener: StoreOpener) -> None:
    await made(store, creation("a", LOST))
    await opener.sql(_moving("a", "returned", opener))
    assert (await see(store, "a")).state == "returned"


@needs("sql")
@pytest.mark.parametrize("state", ["mislaid", "", "written"])
async def test_a_record_in_an_unknown_state_cannot_be_inserted_from_a_shell(
    store: Store, opener: StoreOpener, state: str
) -> None:
    await made(store, creation("a"))
    await opener.sql(_copying("a", "parcel", "fine", "sent", opener))
    assert (await see(store, "fine")).state == "sent"
    with pytest.raises(Exception):  # noqa: B017, PT011
        await opener.sql(_copying("a", "parcel", "bad", state, opener))
    assert await look(store, "bad") is None


@needs("sql")
async def test_a_record_of_an_unknown_kind_cannot_be_inserted_from_a_shell(
    store: Store, opener: StoreOpener
) -> None:
    await made(store, creation("a"))
    with pytest.raises(Exception):  # noqa: B017, PT011
        await opener.sql(_copying("a", "crate", "bad", "packed", opener))
    table = opener.record_table()
    assert len(await opener.sql(f"SELECT id FROM {table.name}")) == 1


@needs("sql")
async def test_one_illegal_row_refuses_its_whole_statement(store: Store, opener: StoreOpener) -> None:
    states = {"a": PACKED, "b": SENT, "c": DELIVERED, "d": PACKED}
    records = await made(store, *(creation(name, state) for name, state in states.items()))
    table = opener.record_table()
    with pytest.raises(Exception):  # noqa: B017, PT011
        await opener.sql(f"UPDATE {table.name} SET state = 'sent'")
    assert [await see(store, name) for name in states] == records
    await opener.sql(f"UPDATE {table.name} SET state = 'sent' WHERE state <> 'delivered'")
    assert [(await see(store, name)).state for name in states] == ["sent", "sent", "delivered", "sent"]


def _moving(name: str, state: str, opener: StoreOpener) -> str:
    return (
        f"UPDATE {opener.record_table().name} SET state = '{state}' WHERE kind = 'parcel' AND id = '{name}'"
    )


def _copying(source: str, kind: str, name: str, state: str, opener: StoreOpener) -> str:
    """An INSERT of a copy under another name and in another state."""
    table = opener.record_table()
    copied = ", ".join(table.required)
    return (
        f"INSERT INTO {table.name} (kind, id, state, {copied}) "
        f"SELECT '{kind}', '{name}', '{state}', {copied} FROM {table.name} WHERE id = '{source}'"
    )
