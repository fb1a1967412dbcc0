"""Interlock in a Django project: a client from the settings, and `manage.py interlock`.

    INSTALLED_APPS = [..., "interlock.django"]
    INTERLOCK = {"DATABASE": "default", "TASKS": "shop.tasks"}

    from interlock.django import jobs

    with transaction.atomic():
        order = Order.objects.create(...)
        jobs().submit(send_invoice, order.pk)    # with the order, or not at all

Settings, all optional:

    URL       the store or server; the default is INTERLOCK_URL, then `interlock.toml`
    DATABASE  name of one of your DATABASES, PostgreSQL or SQLite, that is the store as well
    TASKS     module with the tasks, for `manage.py interlock worker start`
    TOKEN     access token, for a server
"""

from __future__ import annotations

import atexit
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from interlock.errors import InterlockError, InvalidSettings

if TYPE_CHECKING:
    from interlock.client_transactions import SyncTransactionClient
    from interlock.sync import Interlock

KEYS = ("URL", "DATABASE", "TASKS", "TOKEN")
_ENGINES = {"postgresql": "postgresql", "sqlite3": "sqlite"}

_lock = threading.Lock()
_opened: tuple[int, Interlock] | None = None
"""The process that opened the client, and the client: a fork needs its own."""
_opened_early: int | None = None
"""The process in which `open_before_transactions` has done its work."""


def client() -> Interlock:
    """Return this process's client, opened on first use, closed at exit."""
    global _opened  # noqa: PLW0603 - one client for each process is the purpose
    with _lock:
        if _opened is None or _opened[0] != os.getpid():
            from interlock.sync import Interlock  # noqa: PLC0415 - not before the settings are complete

            made = Interlock(store_url(), token=access_token(), actor="django")
            made.open()
            atexit.register(_close, os.getpid())
            _opened = (os.getpid(), made)
        return _opened[1]


def jobs() -> Interlock | SyncTransactionClient:
    """Return the object to submit with: your transaction, or the client.

    It is your transaction if one is open in the store's database. With `DATABASE` set, a job that is
    submitted within `atomic` is there exactly when your rows are. Without it, the job is submitted at once:
    use `transaction.on_commit` for one that belongs to a transaction.
    """
    alias = _settings().get("DATABASE")
    if alias is not None:
        from django.db import connections  # noqa: PLC0415 - Django is optional

        if connections[alias].in_atomic_block:
            return client().within(connections[alias])
    return client()


def open_before_transactions(connection: Any, **_: object) -> None:
    """Open the client when Django connects to the SQLite file of the store.

    Within a transaction that has written it would be too late: opening a store takes the lock that the
    transaction holds. In a new file the store is so created before the tables of Django, too. An error is
    left to the first use of the client.
    """
    global _opened_early  # noqa: PLW0603 - one client for each process
    if connection.vendor != "sqlite" or _opened_early == os.getpid():
        return
    with suppress(InterlockError):
        if connection.alias == _settings().get("DATABASE"):
            _opened_early = os.getpid()
            client()


def store_url() -> str:
    """Return the URL of the store or server from settings or environment."""
    given = _settings()
    if "DATABASE" in given:
        return _url_of(given["DATABASE"])
    if url := given.get("URL") or os.environ.get("INTERLOCK_URL"):
        return str(url)
    from interlock.cli import project  # noqa: PLC0415 - only where nothing else says it

    return project.load().url


def access_token() -> str | None:
    """Return the access token for a server."""
    return _settings().get("TOKEN")


def task_module() -> str | None:
    """Return the module with the tasks."""
    return _settings().get("TASKS")


def _settings() -> dict[str, Any]:
    from django.conf import settings  # noqa: PLC0415 - Django is optional

    given: dict[str, Any] = getattr(settings, "INTERLOCK", {})
    unknown = sorted(given.keys() - set(KEYS))
    if unknown:
        raise InvalidSettings(
            f"INTERLOCK in the settings has no key {unknown[0]!r}.",
            allowed=KEYS,
            todo="Remove it, or correct its name.",
            facts={"keys": unknown},
        )
    return given


def _url_of(alias: str) -> str:
    """Return the URL of one of Django's databases."""
    from django.conf import settings  # noqa: PLC0415 - Django is optional

    known = settings.DATABASES
    if alias not in known:
        raise InvalidSettings(
            f"INTERLOCK['DATABASE'] is {alias!r}, which is not one of DATABASES.",
            allowed=sorted(known),
            todo="Name one of your databases.",
            facts={"database": alias},
        )
    found = known[alias]
    scheme = _ENGINES.get(str(found["ENGINE"]).rpartition(".")[2])
    if scheme is None:
        raise InvalidSettings(
            f"The database {alias!r} is {found['ENGINE']}; a store is PostgreSQL or SQLite.",
            todo="Set INTERLOCK['URL'] to a store of its own, and remove DATABASE.",
            facts={"engine": found["ENGINE"]},
        )
    name = str(found["NAME"])
    if scheme == "sqlite" and (name == ":memory:" or name.startswith("file:")):
        raise InvalidSettings(
            f"The database {alias!r} is {name!r}, which no worker could open: it is in memory, or a URI.",
            todo=f"Name a file; for tests set DATABASES[{alias!r}]['TEST'] to {{'NAME': 'test.sqlite3'}}.",
            facts={"database": alias, "name": name},
        )
    return f"sqlite:///{name}" if scheme == "sqlite" else _postgres_url(found, name)


def _postgres_url(found: dict[str, Any], name: str) -> str:
    user, password = (quote(str(found.get(key) or ""), safe="") for key in ("USER", "PASSWORD"))
    host, port = str(found.get("HOST") or ""), str(found.get("PORT") or "")
    who = f"{user}:{password}@" if password else f"{user}@" if user else ""
    if host.startswith("/"):  # the folder of a socket
        return (
            f"postgresql://{who}/{quote(name, safe='')}?host={quote(host)}{f'&port={port}' if port else ''}"
        )
    return f"postgresql://{who}{host or 'localhost'}{f':{port}' if port else ''}/{quote(name, safe='')}"


def _close(pid: int) -> None:
    global _opened  # noqa: PLW0603 - see `client`
    if _opened is not None and _opened[0] == pid == os.getpid():
        _opened[1].close()
        _opened = None
