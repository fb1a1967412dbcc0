"""What a URL may say, and that its password is shown to nobody."""

from __future__ import annotations

import pytest

from interlock.errors import BadStoreUrl
from interlock.store.postgres import PostgresStore
from interlock.store.postgres.target import target_of
from interlock.testing.store_contract import CATALOGUE

SECRET = "hunter2"


def test_our_options_are_read_and_the_others_are_left_to_the_driver() -> None:
    target = target_of("postgresql://ann@db:5433/work?schema=mine&pool=3&sslmode=require&listen=off")
    assert (target.schema, target.pool, target.listen, target.prepared) == ("mine", 3, False, False)
    assert target.url == "postgresql://ann@db:5433/work?sslmode=require"


def test_a_pool_that_follows_prepared_statements_may_have_them() -> None:
    target = target_of("postgresql:///work?listen=off&prepared=on")
    assert (target.listen, target.prepared) == (False, True)


def test_the_server_itself_can_be_named_for_listening_past_a_pool() -> None:
    target = target_of("postgresql://bouncer:6432/work?listen=db:5432")
    assert (target.listen, target.listen_at, target.pooled, target.prepared) == (
        True,
        ("db", 5432),
        True,
        False,
    )


def test_without_options_everything_is_used() -> None:
    target = target_of("postgres://db/work")
    assert (target.schema, target.listen, target.prepared) == ("interlock", True, True)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ann:{SECRET}@db/work",
        f"postgresql://ann@db/work?password={SECRET}",
        f"postgresql://ann:{SECRET}@/work?host=/run/pg&sslpassword={SECRET}",
    ],
)
def test_the_password_of_the_url_is_hidden_in_every_representation(url: str) -> None:
    store = PostgresStore(url, CATALOGUE)
    target = target_of(url)
    assert SECRET not in repr(store) + target.shown + repr(target)
    assert "ann@" in repr(store)


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        (f"mysql://ann:{SECRET}@db/work", "scheme"),
        ("", "scheme"),
        (f"postgresql://ann:{SECRET}@db/work?schema=Robert'); DROP", "schema"),
        ("postgresql://db/work?schema=pg_mine", "schema"),
        ("postgresql://db/work?schema=", "schema"),
        ("postgresql://db/work?listen=maybe", "listen=maybe"),
        ("postgresql://db/work?prepared=1", "prepared=1"),
        ("postgresql://db/work?pool=1", "pool=1"),
        ("postgresql://db/work?pool=many", "pool=many"),
        (f"postgresql://ann:{SECRET}@[db/work", "cannot be read"),
        ("postgresql://db:port/work", "cannot be read"),
        ("postgresql://db/work?schema", "cannot be read"),
    ],
)
def test_an_invalid_url_is_refused_with_the_reason_and_without_its_password(url: str, complaint: str) -> None:
    with pytest.raises(BadStoreUrl, match=complaint) as caught:
        PostgresStore(url, CATALOGUE)
    assert SECRET not in str(caught.value.as_dict())
    assert "postgresql://" in caught.value.todo
