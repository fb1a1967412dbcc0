"""What `interlock db` does, and the rows that it shows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import msgspec

from interlock.cli import project
from interlock.cli.connecting import store_url
from interlock.cli.loading import load_kinds
from interlock.cli.printing import Sheet
from interlock.engine.audit import Audit, audit
from interlock.store.catalogue import Catalogue
from interlock.store.checking import known_kind
from interlock.store.contract import ServerConnections, Store, StoreStatus
from interlock.store.urls import store_for
from interlock.systems.catalogue import CATALOGUE, Lifecycles, lifecycles_with
from interlock.systems.orchestrator.tokens import EPOCH_SHIFT

T = TypeVar("T")


def ask(url: str | None, work: Callable[[Store], Awaitable[T]], kinds: Catalogue = CATALOGUE) -> T:
    """Open the store of this project, do the work, and let go."""

    async def run() -> T:
        store = store_for(store_url(project.load(url)), kinds)
        try:
            await store.open()
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def status(url: str | None) -> StoreStatus:
    """What is in the database; opening it has brought its schema up to date."""
    return ask(url, lambda store: store.status())


def prune(url: str | None, kind: str | None, older_than: timedelta) -> dict[str, dict[str, int]]:
    """Prune batch after batch until nothing is left to prune; the counts by kind."""
    counts: dict[str, dict[str, int]] = {}
    kinds = _lifecycles(url).kinds

    async def work(store: Store) -> dict[str, dict[str, int]]:
        for name in _named(kinds, kind):
            states = sorted(kinds[name].ended)
            removed = counts[name] = {"records": 0, "entries": 0, "requests": 0}
            more = bool(states)
            while more:
                batch = await store.prune(kind=name, states=states, older_than=older_than)
                removed["records"] += batch.records
                removed["entries"] += batch.entries
                removed["requests"] += batch.requests
                more = batch.more
        return counts

    return ask(url, work, kinds)


def vacuumed(url: str | None) -> tuple[str, int | None]:
    """Free what can be freed; return where, and how many bytes."""

    async def work(store: Store) -> tuple[str, int | None]:
        freed = await store.compact()
        return (await store.status()).url, freed

    return ask(url, work)


def restored(url: str | None, fence: int) -> tuple[str, int]:
    """Begin an epoch above that of a fence; return where, and which."""

    async def work(store: Store) -> tuple[str, int]:
        epoch = await store.raise_epoch(fence >> EPOCH_SHIFT)
        return (await store.status()).url, epoch

    return ask(url, work)


def audited(url: str | None, kind: str | None) -> Audit:
    """Replay the journal of every kind that has one."""
    machines, known, _ = _lifecycles(url)
    kinds = [name for name in _named(known, kind) if name in machines]
    return ask(url, lambda store: audit(store, machines, kinds), known)


def status_entry(found: StoreStatus) -> dict[str, Any]:
    """The status for a program."""
    entry: dict[str, Any] = msgspec.to_builtins(found)
    return entry


def status_sheets(found: StoreStatus) -> list[Sheet]:
    """The status for people."""
    counted = partial(_counted, found.cap)
    oldest = found.oldest_entry_at.isoformat(timespec="seconds") if found.oldest_entry_at else "none"
    about = [
        ("store", found.url),
        ("server", found.server),
        ("schema", f"version {found.schema_version} of {found.wanted_version}"),
        *([("size", f"{found.size_bytes:,} bytes")] if found.size_bytes is not None else []),
        ("journal", f"{counted(found.entries)} entries, the oldest of {oldest}"),
        ("requests", counted(found.requests)),
        *_connections(found.connections),
    ]
    rows = [(kind, state, counted(n)) for kind, by in found.records.items() for state, n in by.items()]
    return [
        Sheet("about", "Store", ("what", "value"), about),
        Sheet("records", "Records", ("kind", "state", "number"), rows),
    ]


def _counted(cap: int | None, number: int) -> str:
    """A number, marked where counting ended there."""
    return f"{number}+" if cap is not None and number >= cap else str(number)


def _connections(found: ServerConnections | None) -> list[tuple[str, str]]:
    if found is None:
        return []
    each = f"{found.at_rest} at rest, at most {found.busy}"
    return [
        ("connections", f"{found.ours} of Interlock, {found.all} in all, the server allows {found.most}"),
        ("for each worker", each),
    ]


def pruned_sheet(pruned: dict[str, dict[str, int]]) -> Sheet:
    """What was removed, one line for each kind."""
    rows = [(kind, str(n["records"]), str(n["entries"]), str(n["requests"])) for kind, n in pruned.items()]
    return Sheet("pruned", "Removed", ("kind", "records", "entries", "requests"), rows)


def audit_entry(found: Audit) -> dict[str, Any]:
    """The audit for a program."""
    entry: dict[str, Any] = msgspec.to_builtins(found)
    return {"ok": not found.faults, **entry}


def audit_sheets(found: Audit) -> list[Sheet]:
    """The audit for people: what was looked at, then every fault."""
    verdict = f"{len(found.faults)} faults" if found.faults else "journal and records agree"
    about = [
        ("verdict", verdict),
        ("records", str(found.records)),
        ("entries", str(found.entries)),
        ("steps", str(found.steps)),
        ("refusals", str(found.refusals)),
    ]
    faults = [(fault.kind, fault.id, str(fault.version), fault.sentence) for fault in found.faults]
    return [
        Sheet("audit", "Audit", ("what", "value"), about),
        Sheet("fault", "Faults", ("kind", "id", "version", "what is wrong"), faults),
    ]


def _lifecycles(url: str | None) -> Lifecycles:
    """Return our lifecycles and those of the kinds that the project file names."""
    return lifecycles_with(declared=load_kinds(project.load(url).kinds))


def _named(kinds: Catalogue, kind: str | None) -> Sequence[str]:
    return tuple(kinds) if kind is None else (known_kind(kinds, kind).name,)
