"""A user's own lifecycle, declared as a kind: the same on every store, with no more code."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from tests.clocks import move_server, move_sqlite
from tests.waiting import PATIENCE_S

from interlock import Interlock, kind, sync
from interlock.client_resources import RecordsClient
from interlock.engine.clock import StoreClock
from interlock.engine.retention import Retention
from interlock.errors import (
    EventIgnored,
    GuardRefused,
    InterlockError,
    InvalidData,
    MalformedKind,
    RecordExists,
    RequestIdReused,
    TerminalState,
    UnknownEvent,
    UnknownRecord,
    UnknownState,
    VersionChanged,
)
from interlock.machine import Deadline, Machine, command, end, ignore, on, state, timer
from interlock.store.records import Change, Commit, Illegal, Key
from interlock.testing import in_memory
from interlock.testing.servers import PostgresServer, RedisServer
from interlock.worker.imports import import_named

SHOP = import_named(str(Path(__file__).parents[2] / "examples" / "orders.py"))
ORDER, ORDERS, Order = SHOP.ORDER, SHOP.ORDERS, SHOP.Order

Later = Callable[[float], Awaitable[None]]
FAR_S = 3_600.0
SHIPPING_S = 172_800.0


async def walk(il: Interlock, later: Later) -> None:
    """Take orders everywhere, and see that all stores say the same."""
    orders = il.records(ORDERS)
    placed = await orders.create(Order(customer="ada", amount=40), request_id="ada-1")
    again = await orders.create(Order(customer="ada", amount=40), request_id="ada-1")
    assert (placed.state, placed.version, placed.data) == ("placed", 1, Order(customer="ada", amount=40))
    assert again == placed
    assert placed.deadline_at is not None  # decided a moment before the store has written it
    assert placed.created_at < placed.deadline_at <= placed.created_at + timedelta(seconds=900)
    await _is_sent_events(orders, placed.id)
    await _is_listed(orders)
    late = await orders.create({"customer": "bob", "amount": 3}, record_id="late")
    await orders.create(Order(customer="cyd", amount=7), record_id="unsent")
    await orders.send("unsent", "pay", amount=7)
    await later(FAR_S)
    await il._port.recover()
    expired = await orders.get(late.id)
    assert (expired.state, expired.ended, expired.accepts) == ("expired", True, ())
    story = [(step.event, step.target) for entry in await orders.history("late") for step in entry.note.steps]
    assert story == [("payment_late", "expired")]
    await _is_enforced(il)
    await _is_paid_back(il, orders, later)


async def _is_paid_back(il: Interlock, orders: RecordsClient[Any], later: Later) -> None:
    """An order that nobody has shipped in time is paid back, once, however often the bank reports it."""
    assert (await orders.get("unsent")).state == "paid"
    await later(SHIPPING_S)
    await il._port.recover()
    back = await orders.get("unsent")
    assert (back.state, back.deadline_at) == ("refunding", None)
    assert (await orders.explain("unsent")).turn == "bank"
    refunded = await orders.send("unsent", "refund", expected=back.version)
    assert (refunded.state, refunded.ended, refunded.data.paid) == ("refunded", True, 7)
    with pytest.raises(EventIgnored, match="a bank may report twice"):
        await orders.send("unsent", "refund")
    story = [step.event for entry in await orders.history("unsent") for step in entry.note.steps]
    assert story == ["pay", "shipping_late", "refund"]


async def _is_sent_events(orders: RecordsClient[Any], order: str) -> None:
    with pytest.raises(GuardRefused, match="the amount is not that of the order"):
        await orders.send(order, "pay", amount=3)
    paid = await orders.send(order, "pay", amount=40, expected=1, request_id="pay-1", reason="by card")
    assert (paid.state, paid.version, paid.data.paid, paid.accepts) == (
        "paid",
        2,
        40,
        ("ship", "cancel", "close"),
    )
    assert paid.data.paid_at is not None
    repeated = await orders.send(order, "pay", amount=40, expected=1, request_id="pay-1", reason="by card")
    assert repeated == paid
    with pytest.raises(RequestIdReused):
        await orders.send(order, "pay", amount=41, expected=1, request_id="pay-1")
    with pytest.raises(VersionChanged, match="version 2, not in version 1"):
        await orders.send(order, "ship", tracking="T1", expected=1)
    shipped = await orders.send(order, SHOP.Ship(tracking="T1"), expected=2)
    assert (shipped.state, shipped.data.tracking, shipped.deadline_at) == ("shipped", "T1", None)
    explanation = await orders.explain(order)
    assert (explanation.turn, explanation.sentence) == ("carrier", "Is on its way.")
    assert [event.name for event in explanation.accepts] == ["deliver", "close"]
    assert (await orders.send(order, "deliver")).ended
    with pytest.raises(TerminalState):
        await orders.send(order, "cancel")
    story = await orders.history(order)
    assert [entry.note.reason for entry in story] == ["created", "by card", "", ""]
    assert [step.event for entry in story for step in entry.note.steps] == ["pay", "ship", "deliver"]


async def _is_listed(orders: RecordsClient[Any]) -> None:
    await orders.create(Order(customer="eve", amount=1), record_id="eve-1")
    assert [one.id for one in (await orders.list(states=["PLACED"]))[0]] == ["eve-1"]
    assert [one.data.customer for one in (await orders.list(customer="ada"))[0]] == ["ada"]
    found, cursor = await orders.list(limit=1)
    more, _ = await orders.list(limit=1, cursor=cursor)
    assert sorted(one.data.customer for one in (*found, *more)) == ["ada", "eve"]
    with pytest.raises(InvalidData, match="not found by amount"):
        await orders.list(amount=1)
    with pytest.raises(UnknownState):
        await orders.list(states=["nowhere"])


async def _is_enforced(il: Interlock) -> None:
    """The store itself refuses a step that the table does not have."""
    (found,) = await il.services.store.load([Key("order", "late")])
    assert found is not None
    change = Change(kind="order", id=found.id, expected=found.version, state="paid", body=found.body)
    assert isinstance((await il.services.store.commit([Commit(changes=(change,))]))[0], Illegal)


async def test_an_order_walks_through_its_table_in_memory() -> None:
    async with in_memory() as il:

        async def later(seconds: float) -> None:
            await il.clock.jump(seconds)

        await walk(il, later)


async def test_an_order_walks_through_its_table_on_sqlite(tmp_path: Path) -> None:
    async with Interlock(f"sqlite:///{tmp_path}/shop.db") as il:

        async def later(seconds: float) -> None:
            move_sqlite(il.services.store, seconds)

        await walk(il, later)


async def test_an_order_walks_through_its_table_on_postgresql(postgres: PostgresServer) -> None:
    async with Interlock(postgres.new_database()) as il:

        async def later(seconds: float) -> None:
            move_server(postgres, seconds)

        await walk(il, later)


async def test_an_order_walks_through_its_table_on_redis(redis: RedisServer) -> None:
    async with Interlock(f"unix://{redis.folder / 'redis.sock'}?db=500") as il:

        async def later(seconds: float) -> None:
            move_server(redis, seconds)

        await walk(il, later)


async def test_a_deadline_holds_although_no_sweep_has_run(tmp_path: Path) -> None:
    async with Interlock(f"sqlite:///{tmp_path}/shop.db") as il:
        il.services.engine.clock = StoreClock(
            il.services.store, resync_s=-1.0
        )  # it notices that the clock was set
        orders = il.records(ORDERS)
        late = await orders.create(Order(customer="ada", amount=40))
        move_sqlite(il.services.store, FAR_S)
        with pytest.raises(TerminalState, match="expired"):
            await orders.send(late.id, "pay", amount=40)
        assert (await orders.get(late.id)).state == "placed"


async def test_of_many_that_pay_with_the_same_version_one_is_accepted(tmp_path: Path) -> None:
    async with Interlock(f"sqlite:///{tmp_path}/shop.db") as il:
        orders = il.records(ORDERS)
        placed = await orders.create(Order(customer="ada", amount=40))
        payments = (orders.send(placed.id, "pay", amount=40, expected=1) for _ in range(10))
        outcomes = await asyncio.gather(*payments, return_exceptions=True)
        assert (
            sorted(type(outcome).__name__ for outcome in outcomes)
            == ["StoredRecord"] + ["VersionChanged"] * 9
        )


async def test_watch_yields_every_state_of_a_record_until_its_final_state(tmp_path: Path) -> None:
    async with Interlock(f"sqlite:///{tmp_path}/shop.db") as il:
        orders = il.records(ORDERS)
        placed = await orders.create(Order(customer="ada", amount=40))
        seen = []
        async with asyncio.timeout(PATIENCE_S):
            async for order in orders.watch(placed.id):
                seen.append(order.state)
                if order.state == "placed":
                    await orders.send(placed.id, "pay", amount=40)
                elif order.state == "paid":
                    move_sqlite(il.services.store, 1_000 * FAR_S)  # the watcher finds that it was not shipped
                elif order.state == "refunding":
                    await orders.send(placed.id, "refund")
        assert seen == ["placed", "paid", "refunding", "refunded"]
        assert (await orders.wait(placed.id, "refunded")).state == "refunded"


def test_a_program_without_asyncio_keeps_records_as_well(tmp_path: Path) -> None:
    with sync.Interlock(f"sqlite:///{tmp_path}/shop.db") as il:
        orders = il.records(ORDERS)
        placed = orders.create(Order(customer="ada", amount=40), record_id="a")
        assert orders.send("a", "cancel", expected=placed.version).state == "cancelled"
        assert orders.wait("a", timeout_s=PATIENCE_S) == orders.get("a") == orders.list(customer="ada")[0][0]
        assert (len(orders.history("a")), orders.explain("a").accepts) == (2, ())


async def test_an_invalid_event_or_record_is_refused_with_an_explanation_and_changes_nothing() -> None:
    async with in_memory() as il:
        orders = il.records(ORDERS)
        placed = await orders.create(Order(customer="ada", amount=40), record_id="a")

        async def refused(error: type[InterlockError], work: Awaitable[object]) -> InterlockError:
            with pytest.raises(error) as raised:
                await work
            return raised.value

        wrong = await refused(InvalidData, orders.send("a", "pay", amount="much"))
        assert wrong.sentence.startswith("The event pay of order does not take these data: Expected `int`")
        assert (wrong.allowed, wrong.facts["event"]) == (("amount",), "pay")
        wrong = await refused(InvalidData, orders.send("a", "pay", amount=1, color="red"))
        assert "unknown field `color`" in wrong.sentence
        wrong = await refused(InvalidData, orders.send("a", "cancel", why="so"))
        assert wrong.todo == "Send it without data."
        wrong = await refused(InvalidData, orders.send("a", "payment_late"))
        assert "the store sends by itself" in wrong.sentence
        wrong = await refused(UnknownEvent, orders.send("a", "payy"))
        assert "Did you mean pay?" in wrong.sentence
        wrong = await refused(InvalidData, orders.create({"amount": 1}))
        assert "missing required field `customer`" in wrong.sentence
        await refused(RecordExists, orders.create(Order(customer="ada", amount=40), record_id="a"))
        await refused(UnknownRecord, orders.get("b"))
        await refused(UnknownRecord, orders.send("b", "cancel"))
        assert (await orders.get("a")).version == placed.version


async def test_ended_records_of_a_users_kind_are_pruned() -> None:
    async with in_memory() as il:
        orders = il.records(ORDERS)
        for name in ("open", "closed"):
            await orders.create(Order(customer="ada", amount=40), record_id=name)
        await orders.send("closed", "pay", amount=40)
        await orders.send("closed", "close")
        await orders.send("open", "pay", amount=40)
        await il.clock.jump("1h")
        await il.services.retain(Retention(default=timedelta(minutes=30)))
        assert [one.id for one in (await orders.list())[0]] == ["open"]


class Light(StrEnum):
    """The states of a lamp."""

    ON = "on"
    OFF = "off"


class Fuse(msgspec.Struct, frozen=True):
    """Data with which an update may fail."""

    broken: bool = False


def burn(fuse: Fuse, _: object) -> Fuse:
    """Fail if the fuse is broken."""
    if fuse.broken:
        raise RuntimeError("no light")
    return fuse


def lamp(name: str) -> Machine[Any, Fuse]:
    """Return a lamp that goes out by itself."""
    out = timer("out", "It is over.", by="clock")
    switch = command("switch", "It shall be dark.", by="user")
    return Machine(
        name=name,
        doc="A light.",
        initial=Light.ON,
        states=[
            state(Light.ON, "It shines.", turn="user", within=Deadline(out, "burns_s", 60)),
            end(Light.OFF, "It is dark."),
        ],
        rows=[
            on(out, Light.ON, Light.OFF, then=burn, owner="clock", why="It has burnt down."),
            on(switch, Light.ON, Light.OFF, owner="user", why="It is dark now."),
            ignore(out, Light.OFF, why="it is dark"),
        ],
        stop=[switch],
    )


async def test_a_fault_in_one_kind_keeps_no_other_timer_from_firing() -> None:
    lamps = kind(lamp("lamp"), Fuse)
    async with in_memory() as il:
        door = il.records(lamps)
        await door.create(Fuse(broken=True), record_id="broken")
        await door.create(Fuse(), record_id="whole")
        await il.clock.jump("2m")
        await il._port.recover()
        assert (await door.get("whole")).state == "off"
        assert (await door.get("broken")).state == "on"
        assert (await door.history("broken"))[-1].note.reason == "The timer failed: RuntimeError: no light"


def test_a_kind_that_cannot_be_is_refused_when_it_is_declared() -> None:
    with pytest.raises(MalformedKind, match="one of Interlock's own"):
        kind(lamp("job"), Fuse)
    with pytest.raises(MalformedKind, match="cannot be called"):
        kind(lamp("My Lamp"), Fuse)
    with pytest.raises(MalformedKind, match="no field colour") as raised:
        kind(ORDER, Order, labels=["colour"])
    assert "customer" in raised.value.allowed
    with pytest.raises(MalformedKind, match="no event payment_late that can be sent"):
        kind(ORDER, Order, send={"payment_late": "admin"})
    with pytest.raises(MalformedKind, match="no role 'king'"):
        kind(ORDER, Order, send={"pay": "king"})
    with pytest.raises(MalformedKind, match="no timer patience_s"):
        kind(ORDER, Order, durations={"patience_s": 3})
    with pytest.raises(MalformedKind, match="more than 0 s"):
        kind(ORDER, Order, durations={"payment_s": 0})
    with pytest.raises(MalformedKind, match="of type int"):
        kind(lamp("lamp"), cast(Any, int))
