"""Patience for every store that a test makes: a disk that stands still for a while is not its subject."""

from __future__ import annotations

from typing import Any

import pytest
from tests.waiting import PATIENCE_S

from interlock.store.postgres import PostgresStore
from interlock.store.redis import RedisStore
from interlock.store.sqlite import SqliteStore


@pytest.fixture(autouse=True)
def patient_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    stores: tuple[Any, ...] = (SqliteStore, PostgresStore, RedisStore)
    for store in stores:
        monkeypatch.setitem(store.__init__.__kwdefaults__, "timeout_s", PATIENCE_S)
