"""The application that Django loads for "interlock.django"."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

from django.apps import AppConfig
from django.db import close_old_connections

from interlock.worker.context import Context
from interlock.worker.tasks import DEFAULT


class InterlockConfig(AppConfig):  # type: ignore[misc]
    """Puts a middleware around handlers that gives each its own connections, as a request has."""

    name = "interlock.django"
    label = "interlock"

    def ready(self) -> None:
        """Add the middleware once."""
        DEFAULT.middleware(own_connections)


def own_connections(ctx: Context) -> Iterator[None]:  # noqa: ARG001 - every middleware is given it
    """Close connections to the database that are old or broken, before and after a handler in a thread."""
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
