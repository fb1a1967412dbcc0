"""Kinds that users declare, over HTTP: routes, roles, client, metrics and the document, with no more code."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.server.listeners import listening
from tests.server.running import Running, any_port, running
from tests.waiting import PATIENCE_S, until

from interlock import Interlock, Role
from interlock.errors import GuardRefused, NotAllowed, UnknownEvent, UnknownKind, VersionChanged
from interlock.systems.kinds import lifecycles_with
from interlock.worker.imports import import_named

SHOP = import_named(str(Path(__file__).parents[2] / "examples" / "orders.py"))
ORDERS, Order = SHOP.ORDERS, SHOP.Order


@asynccontextmanager
async def shop(**settings: Any) -> AsyncIterator[Running]:
    async with running(
        settings=any_port(**settings), lifecycles=lifecycles_with(declared=[ORDERS])
    ) as server:
        yield server


async def test_an_order_is_placed_paid_and_shown_over_http() -> None:
    async with shop() as server:
        client = server.client()
        body = {"data": {"customer": "ada", "amount": 40}, "id": "o-1", "request_id": "cart-1"}
        made = await client.post("/api/kinds/order", json=body)
        assert (made.status_code, made.json()["state"]) == (201, "placed")
        assert (await client.post("/api/kinds/order", json=body)).json() == made.json()
        path = "/api/kinds/order/o-1"
        paid = await client.post(f"{path}/send/pay", json={"data": {"amount": 40}, "expected": 1})
        assert (paid.status_code, paid.json()["state"], paid.json()["data"]["paid"]) == (200, "paid", 40)
        late = await client.post(f"{path}/send/ship", json={"data": {"tracking": "T"}, "expected": 1})
        assert (late.status_code, late.json()["code"]) == (409, "version_changed")
        wrong = await client.post(f"{path}/send/ship", json={"data": {"number": "T"}})
        assert wrong.status_code == 422
        assert "data" in wrong.json()["error"]
        assert (await client.get(path)).json()["accepts"] == ["ship", "cancel", "close"]
        story = (await client.get(f"{path}/history")).json()["entries"]
        assert [step["event"] for entry in story for step in entry.get("steps", ())] == ["pay"]
        explanation = (await client.get(f"{path}/explain")).json()
        assert (explanation["turn"], explanation["deadline_event"]) == ("warehouse", "shipping_late")
        found = (await client.get("/api/kinds/order", params={"where": '{"customer":"ada"}'})).json()
        assert [record["id"] for record in found["records"]] == ["o-1"]
        assert (await client.get("/api/kinds/order", params={"state": "placed"})).json()["records"] == []
        assert (await client.get("/api/kinds/order/o-2")).json()["code"] == "unknown_record"
        assert (await client.post(f"{path}/send/payment_late")).json()["code"] == "invalid_data"
        (kind,) = (await client.get("/api/kinds")).json()["kinds"]
        assert (kind["name"], kind["create"]) == ("order", "submitter")


async def test_live_events_carry_each_step_of_a_users_kind() -> None:
    async with shop() as server, server.client() as client, listening(client, kind="order") as events:
        await client.post("/api/kinds/order", json={"data": {"customer": "ada", "amount": 4}, "id": "o-1"})
        await client.post("/api/kinds/order/o-1/send/pay", json={"data": {"amount": 4}})
        await client.post("/api/kinds/order/o-1/send/cancel")
        entries = await events.entries(3)
        assert [(entry["kind"], entry["version"]) for entry in entries] == [("order", n) for n in (1, 2, 3)]
        assert [step["event"] for entry in entries for step in entry.get("steps", ())] == ["pay", "cancel"]


async def test_the_routes_of_machines_show_and_draw_a_users_kind() -> None:
    async with shop() as server:
        client = server.client()
        await client.post("/api/kinds/order", json={"data": {"customer": "ada", "amount": 4}})
        listed = {each["name"]: each for each in (await client.get("/api/machines")).json()["machines"]}
        assert listed["order"].get("recorded", True)  # `true` is left out
        assert not listed["lease"]["recorded"]
        sheet = (await client.get("/api/machines/order")).json()
        assert {state["name"] for state in sheet["states"]} == set(SHOP.EVERYWHERE)
        picture = await client.get("/api/machines/order.svg", params={"state": "paid"})
        assert picture.headers["content-type"].startswith("image/svg+xml")
        assert ">refunding</text>" in picture.text
        assert "Waits for the payment." in picture.text
        standing = (await client.get("/api/machines/order/standing")).json()
        assert {each["state"]: each["number"] for each in standing["states"]}["placed"] == 1


async def test_each_event_of_a_kind_requires_its_own_role() -> None:
    async with shop(tokens_required=True) as server:
        viewer, submitter, operator = [
            server.client(await server.token(role)) for role in (Role.VIEWER, Role.SUBMITTER, Role.OPERATOR)
        ]
        body = {"data": {"customer": "ada", "amount": 40}, "id": "o-1"}
        assert (await viewer.post("/api/kinds/order", json=body)).status_code == 403
        assert (await submitter.post("/api/kinds/order", json=body)).status_code == 201
        path = "/api/kinds/order/o-1"
        assert (await viewer.get(path)).json()["data"] == {"customer": "ada", "amount": 40}
        assert (await viewer.post(f"{path}/send/cancel")).status_code == 403
        assert (await submitter.post(f"{path}/send/pay", json={"data": {"amount": 40}})).status_code == 200
        assert (await submitter.post(f"{path}/send/close")).status_code == 403
        assert (await operator.post(f"{path}/send/close")).json()["state"] == "cancelled"
        confined = server.client(await server.token(Role.ADMIN, "c", queues=["mail"]))
        assert (await confined.get(path)).status_code == 403
        with pytest.raises(NotAllowed):
            async with Interlock(server.url, token=await server.token(Role.VIEWER, "v")) as il:
                await il.records(ORDERS).create(Order(customer="eve", amount=1))


async def test_the_client_creates_changes_lists_explains_and_watches_records_through_a_server() -> None:
    async with shop() as server, Interlock(server.url) as il:
        orders = il.records(ORDERS)
        placed = await orders.create(Order(customer="ada", amount=40), record_id="o-1")
        assert placed.data == Order(customer="ada", amount=40)
        with pytest.raises(GuardRefused, match="the amount is not that of the order"):
            await orders.send("o-1", "pay", amount=3)
        with pytest.raises(VersionChanged):
            await orders.send("o-1", "pay", amount=40, expected=7)
        with pytest.raises(UnknownEvent, match="Did you mean pay"):
            await orders.send("o-1", "payy")
        with pytest.raises(UnknownKind) as raised:
            await il.records("parcel").get("o-1")
        assert raised.value.allowed == ("order",)
        assert (await orders.send("o-1", "pay", amount=40, expected=1)).data.paid == 40
        assert [one.id for one in (await orders.list(states=["paid"], customer="ada"))[0]] == ["o-1"]
        assert (await orders.explain("o-1")).turn == "warehouse"
        seen = []
        async with asyncio.timeout(PATIENCE_S):
            async for order in orders.watch("o-1"):
                seen.append(order.state)
                if order.state == "paid":
                    await il.records("order").send("o-1", "ship", tracking="T1")
                elif order.state == "shipped":
                    await orders.send("o-1", "deliver")
        assert seen == ["paid", "shipped", "delivered"]
        assert [entry.version for entry in await orders.history("o-1")] == [1, 2, 3, 4]


async def test_a_server_fires_the_timers_of_user_defined_kinds_and_counts_their_transitions() -> None:
    async with shop() as server:
        records = server.parts.runtime.records
        await records.create("order", {"customer": "ada", "amount": 40}, record_id="o-1")
        await records.create("order", {"customer": "ada", "amount": 40}, record_id="o-2")
        await records.send("order", "o-2", "pay", {"amount": 40})
        server.jump(1_000)

        async def expired() -> bool:
            return (await records.get("order", "o-1")).state == "expired"

        await until(expired, "the sweep has fired the timer")
        moved = re.compile(r'interlock_transitions_total{[^}]*machine="order"[^}]*to_state="expired"[^}]*} 1')
        lives = re.compile(r'interlock_records{[^}]*"order"[^}]*"paid"[^}]*} 1')

        async def counted() -> bool:
            text = (await server.client().get("/metrics")).text
            return bool(moved.search(text) and lives.search(text))

        await until(counted, "the metrics count it")


async def test_the_openapi_document_and_the_record_view_list_the_events_of_a_user_defined_kind() -> None:
    async with shop() as server:
        client = server.client()
        document = (await client.get("/openapi.json")).json()
        schema = document["components"]["schemas"]["SendOrderPay"]["properties"]["data"]
        assert schema == {"$ref": "#/components/schemas/OrderPay"}
        assert "amount" in document["components"]["schemas"]["OrderPay"]["properties"]
        await client.post("/api/kinds/order", json={"data": {"customer": "a", "amount": 4}, "id": "o-1"})
        shown = (await client.get("/api/records/order/o-1")).json()
        assert [action["request"] for action in shown["actions"]] == [
            "/api/kinds/order/o-1/send/cancel",
            "/api/kinds/order/o-1/send/close",
        ]
        store = (await client.get("/api/server/store")).json()
        assert "order" in {kept["kind"] for kept in store["retention"]}
