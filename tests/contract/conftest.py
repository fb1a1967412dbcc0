"""The contract suite on all stores: one empty database per test."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("interlock.testing.store_contract")

from interlock.testing.store_contract.fixtures import store  # noqa: E402

__all__ = ["store"]

SQLITE, POSTGRES, REDIS = "test_sqlite", "test_postgres", "test_redis"

QUICK_ON = {
    "test_eight_processes_claim_ten_thousand_records_each_once": POSTGRES,
    "test_four_processes_can_open_an_empty_database_at_once": SQLITE,
    "test_sixty_four_racers_in_eight_processes_with_one_request_have_one_effect": SQLITE,
    "test_a_reader_among_writing_processes_sees_every_entry_once": REDIS,
}
"""Tests that start many processes, and the store that `make test` tries them on."""

REFUSED_AT_THE_DOOR = {
    "test_an_unknown_kind_names_the_known_ones",
    "test_nothing_is_asked_for_less_than_one",
    "test_an_invalid_change_is_refused_before_anything_is_written",
}
"""Many cases of what all stores refuse by the same code: `make test` tries one of each on a server."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave to `make test-all` what `make test` tries on another store."""
    if isinstance(item, pytest.Function) and _is_tried_elsewhere(item):
        item.add_marker(pytest.mark.long)


def _is_tried_elsewhere(item: pytest.Function) -> bool:
    here, name = item.path.stem, item.originalname
    if name in REFUSED_AT_THE_DOOR and here in (POSTGRES, REDIS):
        return any(item.callspec.indices.values())
    return here in (SQLITE, POSTGRES, REDIS) and QUICK_ON.get(name, here) != here
