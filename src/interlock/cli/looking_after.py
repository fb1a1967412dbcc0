"""What `interlock db` does, and the rows that it shows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec

from interlock.cli.sheets import Sheet
from interlock.engine.audit import Audit, audit
from interlock.lifecycles import MACHINES
from interlock.store.catalogue import catalogue_of
from interlock.store.checking import known_kind
from interlock.store.contract import Store, StoreStatus
from interlock.store.urls import store_for

CATALOGUE = catalogue_of(MACHINES.values())


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    """The store, open while it is needed."""
    store = store_for(url, CATALOGUE)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def status(url: str) -> StoreStatus:
    """What is in the database; opening it has brought its schema up to date."""
    async with opened(url) as store:
        return await store.status()


async def prune(url: str, kind: str | None, older_than: timedelta) -> dict[str, dict[str, int]]:
    """Prune batch after batch until nothing is left to prune; the counts by kind."""
    counts: dict[str, dict[str, int]] = {}
    async with opened(url) as store:
        for name in _kinds(kind):
            states = sorted(CATALOGUE[name].terminal)
            removed = counts[name] = {"records": 0, "entries": 0, "requests": 0}
            more = bool(states)
            while more:
                batch = await store.prune(kind=name, states=states, older_than=older_than)
                removed["records"] += batch.records
                removed["entries"] += batch.entries
                removed["requests"] += batch.requests
                more = batch.more
    return counts


async def audited(url: str, kind: str | None) -> Audit:
    """The journal, replayed."""
    async with opened(url) as store:
        return await audit(store, MACHINES, _kinds(kind))


def status_entry(found: StoreStatus) -> dict[str, Any]:
    """The status for a program."""
    entry: dict[str, Any] = msgspec.to_builtins(found)
    return entry


def status_sheets(found: StoreStatus) -> list[Sheet]:
    """The status for people."""
    oldest = found.oldest_entry_at.isoformat(timespec="seconds") if found.oldest_entry_at else "none"
    about = [
        ("store", found.url),
        ("server", found.server),
        ("schema", f"version {found.schema_version} of {found.wanted_version}"),
        ("journal", f"{found.entries} entries, the oldest of {oldest}"),
        ("requests", str(found.requests)),
    ]
    rows = [(kind, state, str(n)) for kind, by in found.records.items() for state, n in by.items()]
    return [
        Sheet("about", "Store", ("what", "value"), about),
        Sheet("records", "Records", ("kind", "state", "number"), rows),
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


def _kinds(kind: str | None) -> Sequence[str]:
    return tuple(CATALOGUE) if kind is None else (known_kind(CATALOGUE, kind).name,)
