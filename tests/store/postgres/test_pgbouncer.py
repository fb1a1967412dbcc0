"""The store behind a real pgbouncer in transaction mode, which has fewer connections than it is asked for."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.debian import unpacked
from tests.waiting import until

from interlock.store.records import Committed
from interlock.testing.servers import PostgresServer, Server, query_postgres, running
from interlock.testing.store_contract.builders import Sender, creation, each, made, see, take, waiting

from .conftest import OpenStore

PORT = 6432
SETTINGS = """
[databases]
* = host={host} port=5432 user=postgres
[pgbouncer]
unix_socket_dir = {folder}
listen_port = {port}
auth_type = any
pool_mode = transaction
default_pool_size = 3
ignore_startup_parameters = extra_float_digits
"""


class PgBouncer(Server):
    """A pool of three connections for each database."""

    def __init__(self, behind: PostgresServer) -> None:
        self._program, self._libraries = program()
        super().__init__(tcp=False)
        self._behind = behind
        settings = SETTINGS.format(host=behind.folder, folder=self.folder, port=PORT)
        (self.folder / "pgbouncer.ini").write_text(settings, encoding="utf-8")

    @property
    def address(self) -> Path:
        return self.folder / f".s.PGSQL.{PORT}"

    def command(self) -> list[str]:
        return [str(self._program), str(self.folder / "pgbouncer.ini")]

    def environment(self) -> Mapping[str, str]:
        return {"LD_LIBRARY_PATH": self._libraries}

    def probe(self) -> None:
        query_postgres(self.address, "postgres", "SELECT 1")

    def url_of(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={quote(str(self.folder), safe='')}&port={PORT}"


def program() -> tuple[Path, str]:
    """Return pgbouncer, and where its libraries are; it is fetched from Debian where there is none."""
    if installed := shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin"):
        return Path(installed), ""
    folder = unpacked("pgbouncer")
    found = folder / "usr" / "sbin" / "pgbouncer"
    if not found.exists():
        pytest.fail("There is no pgbouncer, and its package cannot be fetched: apt install pgbouncer")
    libraries = {str(library.parent) for library in folder.rglob("*.so*")}
    return found, ":".join(sorted(libraries))


@pytest.fixture(scope="module")
def pgbouncer(shared_postgres: PostgresServer) -> Iterator[PgBouncer]:
    with running(PgBouncer(shared_postgres)) as server:
        yield server


@pytest.fixture(params=["off", "direct"])
def url(request: pytest.FixtureRequest, pgbouncer: PgBouncer, postgres: PostgresServer) -> str:
    """A database behind the pool; others' commits are looked for, or listened for at the server itself."""
    listen = "off" if request.param == "off" else quote(f"{postgres.folder}:5432", safe="")
    return f"{pgbouncer.url_of(postgres.new_database_name())}&listen={listen}"


async def test_many_stores_share_few_connections_behind_pgbouncer(url: str, open_store: OpenStore) -> None:
    stores = [await open_store(url) for _ in range(4)]
    names = [f"p{number}" for number in range(40)]
    await waiting(stores[0], *names)
    senders = [Sender() for _ in range(12)]
    taken = await asyncio.gather(*(stores[n % 4].claim(take(5), sender) for n, sender in enumerate(senders)))
    assert sum(len(outcomes) for outcomes in taken) == 40
    assert all(isinstance(outcome, Committed) for outcomes in taken for outcome in outcomes)
    outcomes = await asyncio.gather(*(stores[n % 4].commit(each(creation(f"q{n}"))) for n in range(40)))
    assert all(isinstance(outcome, Committed) for [outcome] in outcomes)
    records = (await stores[1].status()).records["parcel"]
    assert records == {"sent": 40, "packed": 40}


async def test_commits_of_others_are_noticed_behind_pgbouncer(url: str, open_store: OpenStore) -> None:
    here, there = await open_store(url), await open_store(url)
    woken = asyncio.Event()
    stop = here.subscribe(woken.set)
    try:
        await until(woken.is_set, "it listens")
        woken.clear()
        await made(there, creation("a"))
        await until(woken.is_set, "it was woken")
        assert (await see(here, "a")).version == 1
    finally:
        stop()
