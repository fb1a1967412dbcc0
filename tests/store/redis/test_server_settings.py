"""What a server must be like, and what its settings allow to promise."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.effort import further

from interlock.errors import StoreMisconfigured, StoreTooOld
from interlock.store.redis import RedisStore
from interlock.store.redis.handshake import check_server, durability_of, read_info
from interlock.testing.servers import RedisServer
from interlock.testing.store_contract import CATALOGUE

StartServer = Callable[..., RedisServer]


@pytest.fixture(scope="module")
def plain() -> str:
    """What a server that will do says about itself."""
    return (
        "# Server\r\nredis_version:7.2.4\r\nrun_id:abc\r\n"
        "# Replication\r\nrole:master\r\nmaster_replid:def\r\n"
        "maxmemory_policy:noeviction\r\naof_enabled:1\r\n"
    )


@pytest.mark.parametrize(
    "policy", ["allkeys-lru", *further("allkeys-random", "volatile-ttl", "volatile-lru")]
)
async def test_a_server_that_would_throw_records_away_is_refused(
    own_server: StartServer, policy: str
) -> None:
    server = own_server(settings={"maxmemory-policy": policy})
    with pytest.raises(StoreMisconfigured, match=policy) as caught:
        await RedisStore(server.url, CATALOGUE).open()
    assert "noeviction" in caught.value.todo
    assert server.run("DBSIZE") == "0", "Nothing was written."


async def test_a_server_that_does_not_report_its_eviction_policy_is_refused(plain: str) -> None:
    server = read_info(plain.replace("maxmemory_policy:noeviction\r\n", ""))
    with pytest.raises(StoreMisconfigured, match="unknown"):
        check_server(server, "redis://somewhere")


@pytest.mark.parametrize(
    ("append_only", "durable", "words"),
    [
        ("always", True, "appendfsync always"),
        ("everysec", False, "last second"),
        ("no", False, "appendfsync no"),
        ("off", False, "appendonly no"),
    ],
)
async def test_the_store_reports_its_durability_from_the_append_only_settings_of_the_server(
    own_server: StartServer, append_only: str, durable: bool, words: str
) -> None:
    store = RedisStore(own_server(append_only=append_only).url, CATALOGUE)
    await store.open()
    assert store.capabilities.durable is durable
    assert words in store.capabilities.durability
    await store.close()


async def test_a_file_that_is_not_synced_while_it_is_rewritten_is_not_durable(
    own_server: StartServer,
) -> None:
    server = own_server(append_only="always", settings={"no-appendfsync-on-rewrite": "yes"})
    store = RedisStore(server.url, CATALOGUE)
    await store.open()
    assert not store.capabilities.durable
    assert "rewrite" in store.capabilities.durability
    await store.close()


async def test_where_settings_may_not_be_read_nothing_is_promised(own_server: StartServer) -> None:
    server = own_server(append_only="always")
    server.run("ACL", "SETUSER", "guest", "on", ">secret", "~*", "&*", "+@all", "-config")
    store = RedisStore(server.url + "&username=guest&password=secret", CATALOGUE)
    await store.open()
    assert not store.capabilities.durable
    assert "unknown" in store.capabilities.durability
    await store.close()


def test_without_settings_a_server_that_appends_nothing_is_known_to_lose(plain: str) -> None:
    durable, words = durability_of(read_info(plain.replace("aof_enabled:1", "aof_enabled:0")), None)
    assert not durable
    assert "appendonly no" in words


@pytest.mark.parametrize("version", ["6.0.16", "5.0.14", "2.8", ""])
def test_an_old_server_is_refused(plain: str, version: str) -> None:
    with pytest.raises(StoreTooOld, match=r"6\.2"):
        check_server(read_info(plain.replace("7.2.4", version)), "redis://somewhere")


@pytest.mark.parametrize("version", ["6.2.0", "7.0.15", "8.2.1", "10.0"])
def test_a_server_that_is_new_enough_is_taken(plain: str, version: str) -> None:
    check_server(read_info(plain.replace("7.2.4", version)), "redis://somewhere")


async def test_a_replica_is_refused(own_server: StartServer) -> None:
    primary = own_server(tcp=True)
    replica = own_server()
    replica.run("REPLICAOF", "127.0.0.1", str(primary.port))
    with pytest.raises(StoreMisconfigured, match="replica") as caught:
        await RedisStore(replica.url, CATALOGUE).open()
    assert "primary" in caught.value.todo


async def test_a_wrong_password_is_refused_and_not_repeated(own_server: StartServer) -> None:
    server = own_server()
    server.run("ACL", "SETUSER", "guest", "on", ">right", "~*", "&*", "+@all")
    store = RedisStore(server.url + "&username=guest&password=wrong-secret", CATALOGUE)
    with pytest.raises(StoreMisconfigured) as caught:
        await store.open()
    assert "wrong-secret" not in str(caught.value.as_dict())
    assert "wrong-secret" not in repr(store)
