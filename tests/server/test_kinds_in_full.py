"""What a declaration of a kind may say beside the table: each option, with a store and through a server.

The data are a dataclass; `queue` and `parent` index fields of it; an event is left to programs on the store;
and who watches a record of it is woken by its changes.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from tests.server.running import FOR_EVER_S, Running, any_port, running
from tests.waiting import PATIENCE_S

from interlock import Interlock, Role, client_resources, kind
from interlock.client_resources import RecordsClient
from interlock.errors import InvalidData, NotAllowed
from interlock.machine import Event, Kind, Machine, command, end, event, on, state
from interlock.remote import services as http_services
from interlock.remote.records import FOLLOWED
from interlock.remote.services import HttpServices, RemoteOrchestrator
from interlock.store.records import Key
from interlock.systems.kinds import lifecycles_with
from interlock.testing import in_memory
from interlock.testing.servers import PostgresServer, RedisServer


class ParcelState(StrEnum):
    """Where a parcel is."""

    PACKED = "packed"
    SHIPPED = "shipped"
    LOST = "lost"


@dataclasses.dataclass(frozen=True)
class Address:
    """A dataclass inside another one."""

    town: str
    street: str = ""


@dataclasses.dataclass(frozen=True)
class Parcel:
    """Data with a field for each index, and types that JSON has only as text."""

    to: Address
    depot: str = ""
    order: str = ""
    fragile: bool = False
    packed_at: datetime | None = None
    depots: list[str] = dataclasses.field(default_factory=list)


@event(Kind.COMMAND, by="warehouse")
class Move(Event):
    """The parcel goes to another depot."""

    depot: str


def moved(parcel: Parcel, move: Move) -> Parcel:
    """Note both depots."""
    return dataclasses.replace(parcel, depot=move.depot, depots=[*parcel.depots, parcel.depot])


ship = command("ship", "The parcel leaves the house.", by="warehouse")
lose = command("lose", "Nobody finds it.", by="warehouse")

PARCEL: Machine[ParcelState, Parcel] = Machine(
    name="parcel",
    doc="A parcel, from the shelf to the post.",
    initial=ParcelState.PACKED,
    stop=[lose],
    states=[
        state(ParcelState.PACKED, "Waits on the shelf.", turn="warehouse"),
        end(ParcelState.SHIPPED, "It is on its way."),
        end(ParcelState.LOST, "It is nowhere."),
    ],
    rows=[
        on(Move, ParcelState.PACKED, ParcelState.PACKED, then=moved, owner="warehouse", why="It is carried."),
        on(ship, ParcelState.PACKED, ParcelState.SHIPPED, owner="warehouse", why="It is picked up."),
        on(lose, ParcelState.PACKED, ParcelState.LOST, owner="warehouse", why="It is gone."),
    ],
)
PARCELS = kind(
    PARCEL, Parcel, labels=("fragile",), queue="depot", parent="order", read="submitter", send={"ship": None}
)
PACKED_AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@asynccontextmanager
async def depot(**settings: Any) -> AsyncIterator[Running]:
    async with running(
        settings=any_port(**settings), lifecycles=lifecycles_with(declared=[PARCELS])
    ) as server:
        yield server


async def are_kept_and_found(parcels: RecordsClient[Any]) -> None:
    """Keep dataclasses, and find them by each index, also after a field of it has changed."""
    sent = Parcel(Address("Kiel", "Quay 1"), "north", "o-1", packed_at=PACKED_AT)
    first = await parcels.create(sent, record_id="p-1")
    assert first.data == sent
    assert (first.queue, first.parent, first.labels) == ("north", "o-1", ("fragile=false",))
    plain = {"to": {"town": "Ulm"}, "depot": "south", "order": "o-1", "fragile": True}
    second = await parcels.create(plain, record_id="p-2")
    assert second.data == Parcel(Address("Ulm"), "south", "o-1", fragile=True)
    third = await parcels.create(Parcel(Address("Hof")), record_id="p-3")
    assert (third.queue, third.parent) == ("", "")

    async def ids(**filters: Any) -> list[str]:
        found, _ = await parcels.list(**filters)
        assert [each.data for each in found] == [(await parcels.get(each.id)).data for each in found]
        return sorted(each.id for each in found)

    assert await ids() == ["p-1", "p-2", "p-3"]
    assert await ids(queue="north") == ["p-1"]
    assert await ids(parent="o-1") == ["p-1", "p-2"]
    assert await ids(parent="o-1", fragile=True) == ["p-2"]
    assert await ids(queue="nowhere") == await ids(parent="o-2") == []
    carried = await parcels.send("p-1", Move(depot="south"), expected=1)
    assert carried.data == dataclasses.replace(sent, depot="south", depots=["north"])
    assert (carried.queue, await ids(queue="north"), await ids(queue="south")) == (
        "south",
        [],
        ["p-1", "p-2"],
    )
    assert await ids(queue="south", states=["packed"], parent="o-1", fragile=False) == ["p-1"]
    with pytest.raises(InvalidData, match="Object missing required field `town`"):
        await parcels.create({"to": {}})
    with pytest.raises(InvalidData, match="not found by depot"):
        await parcels.list(depot="north")  # it is the queue, and has that name only


async def test_dataclasses_are_found_by_queue_and_parent_in_memory() -> None:
    async with in_memory() as il:
        await are_kept_and_found(il.records(PARCELS))


async def test_dataclasses_are_found_by_queue_and_parent_on_sqlite(tmp_path: Path) -> None:
    async with Interlock(f"sqlite:///{tmp_path}/depot.db") as il:
        await are_kept_and_found(il.records(PARCELS))


async def test_dataclasses_are_found_by_queue_and_parent_on_postgresql(postgres: PostgresServer) -> None:
    async with Interlock(postgres.new_database()) as il:
        await are_kept_and_found(il.records(PARCELS))


async def test_dataclasses_are_found_by_queue_and_parent_on_redis(redis: RedisServer) -> None:
    async with Interlock(f"unix://{redis.folder / 'redis.sock'}?db=501") as il:
        await are_kept_and_found(il.records(PARCELS))


async def test_dataclasses_are_found_by_queue_and_parent_through_a_server() -> None:
    async with depot() as server, Interlock(server.url) as il:
        await are_kept_and_found(il.records(PARCELS))


async def test_queue_and_parent_are_parameters_of_the_list_and_fields_of_the_answer() -> None:
    async with depot() as server:
        client = server.client()
        body = {"data": {"to": {"town": "Kiel"}, "depot": "north", "order": "o-1"}, "id": "p-1"}
        made = (await client.post("/api/kinds/parcel", json=body)).json()
        assert (made["queue"], made["parent"]) == ("north", "o-1")
        for query, found in (
            ({"queue": "north"}, ["p-1"]),
            ({"parent": "o-1"}, ["p-1"]),
            ({"queue": "x"}, []),
        ):
            page = (await client.get("/api/kinds/parcel", params=query)).json()
            assert [each["id"] for each in page["records"]] == found, query
        wrong = await client.post("/api/kinds/parcel", json={"data": {"to": {"town": 7}}})
        assert (wrong.status_code, "data.to.town" in wrong.json()["error"]) == (422, True)
        schemas = (await client.get("/openapi.json")).json()["components"]["schemas"]
        assert schemas["Parcel"]["properties"]["to"] == {"$ref": "#/components/schemas/Address"}
        assert schemas["Parcel"]["required"] == ["to"]


async def test_an_event_that_is_not_sent_over_http_is_left_to_programs_on_the_store() -> None:
    async with depot() as server, Interlock(server.url) as il:
        parcels = il.records(PARCELS)
        await parcels.create(Parcel(Address("Kiel")), record_id="p-1")
        with pytest.raises(NotAllowed, match="The event ship of parcel is not sent over HTTP") as raised:
            await parcels.send("p-1", "ship")
        assert raised.value.allowed == ("move", "lose")
        answer = await server.client().post("/api/kinds/parcel/p-1/send/ship")
        assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")
        paths = (await server.client().get("/openapi.json")).json()["paths"]
        assert "/api/kinds/parcel/{record_id}/send/lose" in paths
        assert "/api/kinds/parcel/{record_id}/send/ship" not in paths
        shown = (await server.client().get("/api/records/parcel/p-1")).json()
        assert [action["event"] for action in shown["actions"]] == ["lose"]
        roles = {each.name: each.role for each in (await parcels.explain("p-1")).accepts}
        assert roles == {"move": "operator", "ship": "", "lose": "operator"}
        shipped = await server.parts.runtime.records.send("parcel", "p-1", "ship")
        assert (shipped.state, (await parcels.get("p-1")).state) == ("shipped", "shipped")


async def test_a_program_on_the_store_sends_an_event_that_is_not_sent_over_http(tmp_path: Path) -> None:
    async with Interlock(f"sqlite:///{tmp_path}/depot.db") as il:
        parcels = il.records(PARCELS)
        await parcels.create(Parcel(Address("Kiel")), record_id="p-1")
        assert (await parcels.send("p-1", "ship")).ended
        (stored,) = await il.services.store.load([Key("parcel", "p-1")])
        assert stored is not None
        assert stored.state == "shipped"


async def test_a_kind_is_read_with_its_role_on_every_route() -> None:
    async with depot(tokens_required=True) as server:
        viewer, submitter = [
            server.client(await server.token(role)) for role in (Role.VIEWER, Role.SUBMITTER)
        ]
        await server.parts.runtime.records.create("parcel", Parcel(Address("Kiel")), record_id="p-1")
        for path in ("kinds/parcel", "kinds/parcel/p-1", "records/parcel", "records/parcel/p-1"):
            assert (await viewer.get(f"/api/{path}")).status_code == 403, path
            assert (await submitter.get(f"/api/{path}")).status_code == 200, path
        for path in ("journal", "events"):
            assert (await viewer.get(f"/api/{path}", params={"kind": "parcel"})).status_code == 403, path
        page = (await viewer.get("/api/journal", params={"newest": "true"})).json()["entries"]
        assert "parcel" not in {entry["kind"] for entry in page}
        page = (await submitter.get("/api/journal", params={"kind": "parcel"})).json()["entries"]
        assert [entry["id"] for entry in page] == ["p-1"]


@pytest.fixture
def woken_by_events_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no watcher poll within the time of a test."""
    monkeypatch.setattr(client_resources, "LOOK_EVERY_S", FOR_EVER_S)
    monkeypatch.setattr(http_services, "LOOK_EVERY_S", FOR_EVER_S)


@pytest.mark.usefixtures("woken_by_events_alone")
async def test_a_watcher_over_http_is_woken_by_the_changes_of_its_record() -> None:
    async with depot() as server, Interlock(server.url) as il:
        records = server.parts.runtime.records
        await records.create("parcel", Parcel(Address("Kiel")), record_id="p-1")
        seen = []
        async with asyncio.timeout(PATIENCE_S):
            async for parcel in il.records(PARCELS).watch("p-1"):
                seen.append(parcel.state)
                event = {1: ("move", {"depot": "north"}), 2: ("ship", {})}.get(parcel.version)
                if event is not None:
                    await records.send("parcel", "p-1", *event)
        assert seen == ["packed", "packed", "shipped"]


@asynccontextmanager
async def connected(url: str, token: str | None = None) -> AsyncIterator[HttpServices]:
    port = RemoteOrchestrator(url, token=token)
    await port.connect()
    try:
        yield port.services
    finally:
        await port.disconnect()


@pytest.mark.usefixtures("woken_by_events_alone")
async def test_the_only_stream_of_a_client_follows_a_job_and_a_watched_kind() -> None:
    async with depot(streams_each=1) as server, connected(server.url) as services:
        job_id = await server.submit()
        waiting = asyncio.create_task(services.waiting.ended(job_id))
        await server.parts.runtime.records.create("parcel", Parcel(Address("Kiel")), record_id="p-1")
        news = [asyncio.Event(), asyncio.Event()]
        leaves = [services.records.subscribe("parcel", each.set) for each in news]
        async with asyncio.timeout(PATIENCE_S):
            for each in news:
                await each.wait()  # the stream has begun
                each.clear()
            await server.parts.runtime.records.send("parcel", "p-1", "ship")
            for each in news:
                await each.wait()
            for leave in leaves:
                leave()
            await server.work(job_id)
            assert (await waiting).state == "COMPLETED"


@pytest.mark.usefixtures("woken_by_events_alone")
async def test_a_client_that_left_its_stream_and_comes_back_at_once_is_woken() -> None:
    async with depot(streams_each=1) as server, connected(server.url) as services:
        services.records.subscribe("parcel", lambda: None)()
        await asyncio.sleep(0)
        services.records.subscribe("parcel", lambda: None)()
        woken = asyncio.Event()
        services.store.subscribe(woken.set)
        async with asyncio.timeout(PATIENCE_S):
            await woken.wait()


async def test_a_kind_that_a_token_may_not_follow_is_left_out_and_jobs_are_followed_all_the_same() -> None:
    async with depot(tokens_required=True) as server:
        token = await server.token(Role.VIEWER)
        async with connected(server.url, token) as services, asyncio.timeout(PATIENCE_S):
            woken = asyncio.Event()
            services.records.subscribe("parcel", woken.set)
            await woken.wait()  # by the stream, which has begun
            assert services.records._events._kinds == FOLLOWED
            woken.clear()
            await server.submit()
            await woken.wait()
