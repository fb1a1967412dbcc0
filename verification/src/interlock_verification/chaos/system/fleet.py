"""The fleet on one database: two servers, four workers, and the connections between them.

    anna    a worker on the database itself
    bela    one on the database through a proxy (SQLite has none); its host's clock is skewed
    carl    one behind the server `left`, through a proxy
    dora    one behind the server `right`, through a proxy; its host's clock is skewed

SQLite has one host and so one clock: there only dora is skewed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from interlock.cli import project
from interlock.lifecycles.durations import Durations
from interlock.testing.proxy import Wires, wires_to
from interlock.testing.servers import PostgresServer, RedisServer
from interlock_verification.chaos.databases import SQLITE
from interlock_verification.chaos.system import tasks
from interlock_verification.chaos.system.members import ChaosMember, MemberPlan, free_port
from interlock_verification.chaos.system.zygote import warm_up

DURATIONS = Durations(
    lease_ttl_s=2.0,
    heartbeat_every_s=0.3,
    ack_window_s=2.0,
    sweep_every_s=0.2,
    cancel_deadline_s=1.0,
    abort_warning_s=0.2,
    abort_kill_s=0.4,
    shutdown_soft_s=0.4,
    shutdown_deadline_s=1.8,
    backoff_cap_s=0.4,
)
"""Short durations, so that a death is noticed soon."""
LOSSES = 1_000_000
"""A job may lose its worker any number of times: each has to be completed in the end."""
SLOTS = "20"
QUEUES = ANYBODY, SLOW, ELSEWHERE = "default", "slow", "elsewhere"
"""A late runner may claim slow jobs: when it reports, another runner has them. The queue `elsewhere` is for
hosts with a skewed clock, so that they certainly get jobs.
"""

Database = PostgresServer | RedisServer | None
"""The server of the database; SQLite has none."""


class Fleet:
    """All members by name, and the proxies in front of them."""

    def __init__(self, url: str, database: Database, wires: dict[str, Wires]) -> None:
        self.url = url
        self.database = database
        self.wires = wires
        """Proxies by target: left, right, database."""
        self.members: dict[str, ChaosMember] = {}
        self.ports: dict[str, int] = {}

    @property
    def servers(self) -> list[ChaosMember]:
        """The servers."""
        return [self.members["left"], self.members["right"]]

    @property
    def workers(self) -> list[ChaosMember]:
        """The workers."""
        return [member for member in self.members.values() if member not in self.servers]

    def people_of(self, server: str) -> str:
        """Return the worker that uses only this server."""
        return {"left": "carl", "right": "dora"}[server]

    def address(self, server: str, *, wired: bool = True) -> str:
        """Return the address of a server, through its proxy or directly."""
        return f"http://127.0.0.1:{self.wires[server].port if wired else self.ports[server]}"

    async def mend(self) -> None:
        """Cut half-open connections, so that no client waits for its timeout."""
        for wires in self.wires.values():
            await wires.cut_all()


@asynccontextmanager
async def fleet_on(
    url: str, database: Database, store: str, folder: Path, broken_rule: str = ""
) -> AsyncIterator[Fleet]:
    """Yield a started fleet; remove all of it at the end."""
    _write_project(folder)
    warm_up()
    ports = {"left": free_port(), "right": free_port()}
    async with AsyncExitStack() as stack:
        wires = {
            name: await stack.enter_async_context(wires_to(("127.0.0.1", port)))
            for name, port in ports.items()
        }
        if database is not None:
            wires["database"] = await stack.enter_async_context(wires_to(database.address))
        fleet = Fleet(url, database, wires)
        fleet.ports = ports
        try:
            for plan in _plans(fleet, folder, elsewhere=store != SQLITE, broken_rule=broken_rule):
                fleet.members[plan.name] = ChaosMember(plan)
            yield fleet
        finally:
            for member in fleet.members.values():
                member.life.kill()


def _plans(fleet: Fleet, folder: Path, *, elsewhere: bool, broken_rule: str) -> list[MemberPlan]:
    def server(name: str) -> MemberPlan:
        port = str(fleet.ports[name])
        arguments = ("server", "--port", port, "--store", fleet.url, "--log-level", "warning")
        return MemberPlan(name=name, arguments=arguments, folder=folder, broken_rule=broken_rule)

    def worker(name: str, place: str, *, skewed: bool = False) -> MemberPlan:
        start = ("worker", "start", tasks.__name__, "--store", place, "--name", name, "--slots", SLOTS)
        queues = QUEUES if skewed else (ANYBODY, SLOW)
        arguments = (
            *start,
            *(part for queue in queues for part in ("--queue", queue)),
            "--log-format",
            "json",
        )
        return MemberPlan(
            name=name, arguments=arguments, folder=folder, broken_rule=broken_rule, skewed=skewed
        )

    wire = fleet.wires.get("database")
    return [
        server("left"),
        server("right"),
        worker("anna", fleet.url),
        worker("bela", wire.url(fleet.url) if wire else fleet.url, skewed=elsewhere),
        worker("carl", fleet.address("left")),
        worker("dora", fleet.address("right"), skewed=True),
    ]


def _write_project(folder: Path) -> None:
    lines = (f"{name} = {seconds}" for name, seconds in msgspec.structs.asdict(DURATIONS).items())
    # Losses here are not the fault of workers, so none is quarantined.
    trusting = ["[quarantine]", "occasions = 1000000"]
    text = "\n".join([f"losses = {LOSSES}", "[durations]", *lines, *trusting, ""])
    (folder / project.FILE).write_text(text, encoding="utf-8")
