"""A replica is promoted: what the address leads to, which commits are lost, and what the store notices."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_S, until

from interlock.errors import StoreMisconfigured, StoreUnavailable
from interlock.store.records import Commit, Committed, Conflict, Key
from interlock.store.redis import RedisStore
from interlock.testing.servers import RedisServer
from interlock.testing.store_contract import CATALOGUE
from interlock.testing.store_contract.builders import (
    DELIVERED,
    PACKING,
    SENDING,
    SENT,
    creation,
    each,
    look,
    made,
    move,
    see,
)

from .conftest import OpenStore

StartServer = Callable[..., RedisServer]
NOWHERE = ("127.0.0.1", "1")
"""An address at which no server listens."""
AT_ONCE = {"repl-diskless-sync-delay": "0"}
"""The primary waits for no further replica before it sends its data."""


class MovingAddress:
    """An address that is moved to the primary, as a host name, a virtual IP or a proxy is."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "primary.sock"
        self.url = f"unix://{self._path}?db=0"

    def lead_to(self, server: RedisServer) -> None:
        """Replace the link at once, so that there is always one."""
        new = self._path.with_suffix(".new")
        new.symlink_to(server.folder / "redis.sock")
        new.replace(self._path)


def replication(server: RedisServer) -> dict[str, str]:
    text = str(server.run("INFO", "replication"))
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


async def until_it_has_all(replica: RedisServer, primary: RedisServer) -> None:
    """Wait until everything that the primary has acknowledged so far is on the replica."""
    goal = int(replication(primary)["master_repl_offset"])

    def has_all() -> bool:
        known = replication(replica)
        return known["master_link_status"] == "up" and int(known["slave_repl_offset"]) >= goal

    await until(has_all, "the replica has what the primary has acknowledged")


@pytest.fixture
def servers(own_server: StartServer) -> tuple[RedisServer, RedisServer]:
    """A primary, and its replica."""
    primary, replica = own_server(tcp=True, settings=AT_ONCE), own_server(tcp=True, settings=AT_ONCE)
    replica.run("REPLICAOF", "127.0.0.1", str(primary.port))
    return primary, replica


@pytest.fixture
def address(tmp_path: Path, servers: tuple[RedisServer, RedisServer]) -> MovingAddress:
    leading = MovingAddress(tmp_path)
    leading.lead_to(servers[0])
    return leading


@pytest.fixture
async def store(address: MovingAddress) -> AsyncIterator[RedisStore]:
    """A store at the address that moves."""
    opened = RedisStore(address.url, CATALOGUE, prefix="a", timeout_s=PATIENCE_S)
    await opened.open()
    yield opened
    await opened.close()


async def test_an_address_that_follows_the_promotion_leads_to_the_new_primary_and_its_epoch_has_grown(
    servers: tuple[RedisServer, RedisServer], address: MovingAddress, store: RedisStore
) -> None:
    primary, replica = servers
    [parcel] = await made(store, creation("p", note=PACKING))
    epoch, cursor = await store.epoch(), await store.latest()
    await until_it_has_all(replica, primary)
    primary.kill()
    with pytest.raises(StoreUnavailable):
        await store.commit(each(move(parcel, SENT, note=SENDING)))
    address.lead_to(replica)
    with pytest.raises(StoreUnavailable, match="replica") as caught:
        await store.commit(each(move(parcel, SENT, note=SENDING)))
    assert caught.value.facts["outcome"] == "not done"
    replica.run("REPLICAOF", "NO", "ONE")
    assert await see(store, "p") == parcel
    assert await store.epoch() > epoch
    await made(store, move(parcel, SENT, note=SENDING))
    feed = await store.feed(cursor)
    assert [entry.id for entry in feed.entries] == ["p"], "the cursor is good on the other server"


async def test_a_promotion_loses_what_was_acknowledged_and_not_replicated_and_refuses_what_was_decided_on_it(
    servers: tuple[RedisServer, RedisServer], address: MovingAddress, store: RedisStore
) -> None:
    primary, replica = servers
    [first] = await made(store, creation("p", body=b'"first"', note=PACKING))
    epoch = await store.epoch()
    await until_it_has_all(replica, primary)
    replica.run("REPLICAOF", *NOWHERE)  # its link is cut
    [lost] = await made(store, move(first, SENT, body=b'"lost"', note=SENDING))
    assert [type(one) for one in await store.commit(each(creation("q", note=PACKING)))] == [Committed]
    primary.kill()
    replica.run("REPLICAOF", "NO", "ONE")
    address.lead_to(replica)
    assert await store.epoch() > epoch
    assert await see(store, "p") == first, "an acknowledged change is lost"
    assert await look(store, "q") is None, "and so is an acknowledged record"
    [other] = await made(store, move(first, SENT, body=b'"other"', note=SENDING))
    assert other.version == lost.version
    assert await store.commit(each(move(lost, DELIVERED, note=SENDING))) == [Conflict(other.key, 2, 2)]


async def test_a_primary_that_must_have_a_replica_accepts_nothing_without_one(
    servers: tuple[RedisServer, RedisServer], store: RedisStore
) -> None:
    primary, replica = servers
    await made(store, creation("p", note=PACKING))
    await until_it_has_all(replica, primary)
    primary.run("CONFIG", "SET", "min-replicas-to-write", "1")
    replica.kill()
    await until(lambda: replication(primary)["connected_slaves"] == "0", "the primary has lost its replica")
    with pytest.raises(StoreUnavailable, match="too few replicas") as caught:
        await store.commit([Commit(changes=(creation("q", note=PACKING),))])
    assert caught.value.facts["outcome"] == "not done"
    assert await look(store, "q") is None
    replica.start()
    replica.run("REPLICAOF", "127.0.0.1", str(primary.port))
    await until(lambda: replication(primary).get("min_slaves_good_slaves") == "1", "the replica is back")
    assert [type(one) for one in await store.commit(each(creation("q", note=PACKING)))] == [Committed]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def own_node(own_server: StartServer) -> Callable[[], tuple[RedisServer, int]]:
    """Starts a node of a cluster; returns it with the port of its bus, by default 10,000 above its own."""

    def node() -> tuple[RedisServer, int]:
        bus = free_port()
        settings = {"cluster-enabled": "yes", "cluster-port": str(bus)}
        return own_server(tcp=True, settings=settings), bus

    return node


async def test_a_node_of_a_cluster_serves_a_store_whose_slot_it_has_and_redirects_are_not_followed(
    own_node: Callable[[], tuple[RedisServer, int]], open_store: OpenStore
) -> None:
    node, _ = own_node()
    node.run("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
    await until(lambda: "cluster_state:ok" in str(node.run("CLUSTER", "INFO")), "the cluster is up")
    store = await open_store(node, "a")
    assert [type(one) for one in await store.commit(each(creation("p", note=PACKING)))] == [Committed]
    other, bus = own_node()
    node.run("CLUSTER", "MEET", "127.0.0.1", str(other.port), str(bus))
    name = str(other.run("CLUSTER", "MYID"))
    await until(lambda: name in str(node.run("CLUSTER", "NODES")), "the nodes know each other")
    slot = str(node.run("CLUSTER", "KEYSLOT", "{b}"))
    node.run("CLUSTER", "SETSLOT", slot, "NODE", name)
    with pytest.raises(StoreMisconfigured, match="node that holds the slot") as caught:
        await open_store(node, "b")
    assert caught.value.facts["answer"] == "MOVED"
    assert await store.load([Key("parcel", "p")]) != [None]
