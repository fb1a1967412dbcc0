"""Who is compared on which store, with how many jobs, and what is aimed at."""

from __future__ import annotations

import msgspec

US = "interlock"
STORES = ("PostgreSQL", "SQLite", "Redis")
FEWEST = 200


class Peer(msgspec.Struct, frozen=True):
    """Another project, and how much faster than it we want to be."""

    name: str
    drain_aim: float
    share: float
    """How many of the jobs it is given: those that do under 3,000 a second would take minutes for all."""
    submit_aim: float | None = None
    """How many times as fast we want to submit in bulk, where that is asked for."""

    def jobs(self, jobs: int) -> int:
        """Its share of so many."""
        return min(jobs, max(FEWEST, round(jobs * self.share)))


PEERS: dict[str, tuple[Peer, ...]] = {
    "PostgreSQL": (
        Peer("pgqueuer", 1.5, 1.0, submit_aim=1.0),
        Peer("chancy", 5.0, 0.2),
        Peer("procrastinate", 5.0, 0.05),
        Peer("dbos", 5.0, 0.04),
    ),
    "SQLite": (
        Peer("huey", 3.0, 0.2),
        Peer("dbos", 10.0, 0.015),
    ),
    "Redis": (
        Peer("dramatiq", 2.0, 0.4),
        Peer("huey", 2.0, 0.2),
        Peer("arq", 2.0, 0.2),
        Peer("taskiq", 2.0, 0.2),
    ),
}


def chosen(stores: tuple[str, ...], peers: tuple[str, ...]) -> dict[str, tuple[Peer, ...]]:
    """Those of the table that were asked for; all when nothing was."""
    table = {
        store: tuple(peer for peer in of_store if not peers or peer.name in peers)
        for store, of_store in PEERS.items()
        if not stores or store.lower() in stores
    }
    return {store: of_store for store, of_store in table.items() if of_store or not peers}


def names() -> tuple[str, ...]:
    """Every peer, once."""
    return tuple(sorted({peer.name for of_store in PEERS.values() for peer in of_store}))
