"""Let what waits for an answer wait longer in tests, where a test does not say how long.

The defaults are for users, whose machines seldom stand still for twenty seconds. A test about a timeout
names its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.waiting import PATIENCE_S

from interlock.store.postgres.store import PostgresStore
from interlock.store.redis.store import RedisStore
from interlock.store.sqlite.store import SqliteStore
from interlock.store.urls import store_for
from interlock.systems.runs.reports.github import GithubReporter
from interlock.systems.runs.reports.outbound_http import OutboundHttp
from interlock.systems.runs.reports.webhook import WebhookReporter

_WAITS: tuple[Callable[..., Any], ...] = (
    PostgresStore.__init__,
    RedisStore.__init__,
    SqliteStore.__init__,
    store_for,
    GithubReporter.__init__,
    OutboundHttp.__init__,
    WebhookReporter.__init__,
)


def be_patient() -> None:
    """Replace the default timeouts in this process."""
    for function in _WAITS:
        function.__kwdefaults__ = {**(function.__kwdefaults__ or {}), "timeout_s": PATIENCE_S}
