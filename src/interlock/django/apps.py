"""The application that Django loads for "interlock.django"."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

from django.apps import AppConfig
from django.db import close_old_connections
from django.db.backends.signals import connection_created

from interlock.django import open_before_transactions
from interlock.worker.context import Context
from interlock.worker.tasks import DEFAULT


class InterlockConfig(AppConfig):
    """Puts a middleware around handlers that gives each its own connections, as a request has."""

    name = "interlock.django"
    label = "interlock"

    def ready(self) -> None:
        """Add the middleware, and open the store before any transaction."""
        DEFAULT.middleware(own_connections)
        connection_created.connect(open_before_transactions, dispatch_uid=self.name)


def own_connections(ctx: Context) -> Iterator[None]:  # noqa: ARG001 - every middleware is given it
    """Close old or broken connections around a handler in a thread.

    These are connections to the database.
    """
    _close_old()
    try:
        yield
    finally:
        _close_old()


def _close_old() -> None:
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        return  # the connections of asynchronous code are in threads of its own
    close_old_connections()
