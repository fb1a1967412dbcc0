"""URLs, prefixes and whose keys they are."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from redis.crc import key_slot

from interlock.errors import BadStoreUrl, ForeignSchema, InvalidSettings, SchemaTooNew, StoreUnavailable
from interlock.store.catalogue import StoredKind
from interlock.store.records import Commit, Committed, Key
from interlock.store.redis import RedisStore
from interlock.store.redis.connections import read_address
from interlock.testing.servers import RedisServer
from interlock.testing.store_contract import CATALOGUE
from interlock.testing.store_contract.builders import PACKING, creation, request

from .conftest import OpenStore, Shell


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost",
        "localhost:6379",
        "redis://localhost:port/0",
        "redis://localhost/first",
        "redis://localhost/0?db=x",
        "unix://",
        "redis://[::1/0",
        "",
    ],
)
def test_a_malformed_url_raises_an_error_with_the_expected_scheme(url: str) -> None:
    with pytest.raises(BadStoreUrl) as caught:
        RedisStore(url, CATALOGUE)
    assert "redis://" in caught.value.todo


async def test_an_unknown_url_option_is_refused() -> None:
    with pytest.raises(BadStoreUrl, match="option"):
        await RedisStore("redis://localhost/0?colour=red", CATALOGUE).open()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:secret@host:1/2", "redis://host:1/2"),
        ("rediss://:secret@host", "rediss://host"),
        ("unix:///run/redis.sock?db=1&password=secret", "unix:///run/redis.sock?db=1"),
        ("redis://host/0?ssl_password=secret", "redis://host/0"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    assert read_address(url).shown == shown


async def test_an_error_does_not_show_the_password() -> None:
    store = RedisStore("redis://user:secret@127.0.0.1:1/0", CATALOGUE, timeout_s=2)
    with pytest.raises(StoreUnavailable) as caught:
        await store.open()
    assert "secret" not in str(caught.value.as_dict())
    assert caught.value.facts["outcome"] == "not done"


@pytest.mark.parametrize("prefix", ["", "a b", "{a}", "a*", "a:b", "x" * 65])
def test_a_key_prefix_that_is_empty_too_long_or_has_special_characters_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidSettings, match="prefix"):
        RedisStore("redis://localhost", CATALOGUE, prefix=prefix)


def test_a_kind_with_a_colon_would_make_keys_ambiguous() -> None:
    kind = StoredKind("a:b", "x", ("x",), frozenset({"x"}), frozenset(), "")
    with pytest.raises(InvalidSettings, match="a:b"):
        RedisStore("redis://localhost", {"a:b": kind})


async def test_two_prefixes_do_not_see_each_other(redis: RedisServer, open_store: OpenStore) -> None:
    one = await open_store(redis, redis.new_prefix())
    other = await open_store(redis, redis.new_prefix())
    await one.commit([Commit(changes=(creation("a"),))])
    assert await other.load([Key("parcel", "a")]) == [None]
    assert (await other.status()).records == {}
    [outcome] = await other.commit([Commit(changes=(creation("a"),))])
    assert isinstance(outcome, Committed)


async def test_a_newer_schema_is_refused(redis: RedisServer, prefix: str, store: RedisStore) -> None:
    redis.run("HSET", f"{{{prefix}}}:schema", "version", "3")
    with pytest.raises(SchemaTooNew, match="version 3, this program knows 2"):
        await RedisStore(redis.url, CATALOGUE, prefix=prefix).open()


async def test_a_schema_of_another_application_is_refused_and_left_unchanged(
    redis: RedisServer, shell: Shell, prefix: str
) -> None:
    redis.run("SET", f"{{{prefix}}}:schema", "mine")
    with pytest.raises(ForeignSchema, match="schema"):
        await RedisStore(redis.url, CATALOGUE, prefix=prefix).open()
    assert shell("GET", f"{{{prefix}}}:schema") == "mine"


async def test_a_prefix_with_keys_of_another_application_is_refused_and_no_schema_is_created(
    redis: RedisServer, prefix: str
) -> None:
    redis.run("SET", f"{{{prefix}}}:basket:7", "apples")
    with pytest.raises(ForeignSchema, match="basket:7"):
        await RedisStore(redis.url, CATALOGUE, prefix=prefix).open()
    assert redis.run("EXISTS", f"{{{prefix}}}:schema") == "0"


async def test_a_record_can_be_read_with_a_bare_client(shell: Shell, prefix: str, store: RedisStore) -> None:
    await store.commit(
        [Commit(changes=(creation("a", labels=("big",), queue="post", given=b'{"to":"Ann"}'),))]
    )
    version, state, *_, marks, _, _, data = shell("GET", f"{{{prefix}}}:line:parcel:a").split("\n")
    assert (version, state) == ("1", "packed")
    assert msgspec.json.decode(data) == {"weight": 3}
    assert msgspec.json.decode(marks) == {"queue": "post", "labels": ["big"]}
    assert shell("GET", f"{{{prefix}}}:given:parcel:a") == '{"to":"Ann"}'


async def test_all_keys_live_in_one_slot(shell: Shell, prefix: str, store: RedisStore) -> None:
    past = await store.now() - timedelta(hours=1)
    change = creation("a{b}", parent="{c}", queue="{d}", labels=("{e}",), ready_at=past, deadline_at=past)
    await store.commit(
        [Commit(changes=(msgspec.structs.replace(change, note=PACKING),), request=request("{f}"))]
    )
    keys = [key for key in shell("KEYS", "*") if key.startswith(f"{{{prefix}}}")]
    assert len(keys) > 12
    assert len({key_slot(key.encode()) for key in keys}) == 1


async def test_changed_tables_are_loaded_again(
    redis: RedisServer, prefix: str, open_store: OpenStore
) -> None:
    await open_store(redis, prefix)
    narrow = dict(CATALOGUE)
    narrow["parcel"] = msgspec.structs.replace(CATALOGUE["parcel"], paths=frozenset())
    store = RedisStore(redis.url, narrow, prefix=prefix)
    await store.open()
    assert redis.run("SISMEMBER", f"{{{prefix}}}:path:parcel", "packed>sent") == "0"
    await open_store(redis, prefix)
    assert redis.run("SISMEMBER", f"{{{prefix}}}:path:parcel", "packed>sent") == "1"
    await store.close()


async def test_the_status_reports_the_memory_usage_of_the_server(store: RedisStore) -> None:
    size = (await store.status()).size_bytes
    assert size is not None
    assert size > 100_000
