"""The checks at opening: whether the server is supported, and the schema is ours and up to date.

Mostly there is nothing to do, and then nothing is written. Otherwise all of it is one transaction under a
lock that ends with it, so that many hosts may start at once, even through a pooler.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import msgspec

from interlock.errors import ForeignSchema, StoreMisconfigured, StoreTooOld
from interlock.store.catalogue import Catalogue, StoredKind
from interlock.store.migrations import (
    Migration,
    check_fingerprints,
    development_schema,
    migrations_of,
    outstanding,
    too_new,
)
from interlock.store.postgres.connections import Session
from interlock.store.postgres.queries import in_schema, query
from interlock.store.postgres.target import Target

OLDEST = (13, 0)
"""The first version with transaction ids of 64 bits, which the order of the feed needs."""

MIGRATIONS = migrations_of("interlock.store.postgres")

WITHOUT_FINGERPRINTS = 7
"""The schema version released before fingerprints were stored; no other release lacks them."""
MIGRATE_S = 3_600.0
"""Maximum time to migrate a database with records."""
_FUNCTION = re.compile(r"^CREATE FUNCTION interlock\.(\w+)\(.*?\$\$(.*?)\$\$", re.DOTALL | re.MULTILINE)
_TODO = "Export what you need with the version that made it, and start with a new database or ?schema=."


class PostgresFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of the server."""

    version: str
    durable: bool
    durability: str


async def open_schema(
    session: Session, target: Target, catalogue: Catalogue, *, migrating: bool = False
) -> PostgresFacts | None:
    """Check the server and the schema, migrate it, and load the tables.

    Return None if records may have to be moved, which can take long: that needs `migrating`.
    """
    check_version(session.server_version)
    await session.begin()
    server = await _server(session)
    if not await _is_up_to_date(session, target, catalogue):
        if not migrating and 0 < await _applied(session, target) < len(MIGRATIONS):
            await session.rollback()
            return None
        if migrating:
            await session.script("SET LOCAL statement_timeout = 0")
        await session.within(query("lock_schema", target.schema), f"interlock migrations of {target.schema}")
        applied = await _applied(session, target)
        for migration in outstanding(MIGRATIONS, applied):
            await _migrate(session, target, migration)
        await session.within(
            query("keep_fingerprints", target.schema),
            [migration.number for migration in MIGRATIONS],
            [migration.name for migration in MIGRATIONS],
            [migration.fingerprint for migration in MIGRATIONS],
        )
        await _load_kinds(session, target, catalogue)
    await session.commit()
    return server


def check_version(version: tuple[int, int]) -> None:
    """Raise if the server is too old."""
    if version < OLDEST:
        raise StoreTooOld(
            f"The server is PostgreSQL {version[0]}.{version[1]}; {OLDEST[0]} is the oldest supported one.",
            todo="Upgrade the server.",
            facts={"version": list(version), "oldest": list(OLDEST)},
        )


def digest_of(kind: StoredKind) -> str:
    """Return a digest of a kind, to detect whether it has to be reloaded."""
    parts = (kind.initial, sorted(kind.states), sorted(kind.ended), sorted(kind.paths))
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:16]


async def _server(session: Session) -> PostgresFacts:
    [row] = await session.within(query("server", ""))
    if row["encoding"] != "UTF8":
        raise StoreMisconfigured(
            f"The database encodes text as {row['encoding']}; it must be UTF8.",
            todo="Create another database: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0.",
            facts={"encoding": row["encoding"]},
        )
    if row["isolation"] != "read committed":
        raise StoreMisconfigured(
            f"Transactions begin as {row['isolation']!r} here; it must be 'read committed'.",
            todo="ALTER ROLE … SET default_transaction_isolation = 'read committed'.",
            facts={"isolation": row["isolation"]},
        )
    durable = row["fsync"] == "on" and row["synchronous_commit"] != "off"
    words = ", ".join(f"{name}={row[name]}" for name in ("synchronous_commit", "fsync", "full_page_writes"))
    return PostgresFacts(version=row["version"], durable=durable, durability=words)


async def _is_up_to_date(session: Session, target: Target, catalogue: Catalogue) -> bool:
    """Return whether there is nothing to write."""
    applied = await _applied(session, target)
    if applied != len(MIGRATIONS):
        return False
    rows = await session.within(query("kinds", target.schema))
    known = {row["name"]: row["digest"] for row in rows}
    return all(known.get(name) == digest_of(kind) for name, kind in catalogue.items())


async def _applied(session: Session, target: Target) -> int:
    """Return the applied version, by migrations of this program; 0 for none."""
    rows = await session.within(query("is_ours", ""), target.schema)
    if not rows:
        return 0
    if not rows[0]["ours"]:
        raise ForeignSchema(
            f"The schema {target.schema} of {target.shown} has a table meta of another program.",
            todo="Choose another schema with ?schema=, or another database.",
            facts={"url": target.shown, "schema": target.schema},
        )
    [[version]] = await session.within(query("schema_version", target.schema))
    shown = f"The schema {target.schema} of {target.shown}"
    if rows[0]["fingerprinted"]:
        kept = await session.within(query("fingerprints", target.schema))
        check_fingerprints(MIGRATIONS, {row[0]: row[1] for row in kept}, f"the {shown[4:]}", todo=_TODO)
    elif not await _has_landed(session, target, version):
        raise development_schema(version, shown, todo=_TODO)
    return int(version)


async def _has_landed(session: Session, target: Target, version: int) -> bool:
    """Return whether its functions are those of the released old schema."""
    sql = "".join(migration.text for migration in MIGRATIONS[:WITHOUT_FINGERPRINTS])
    landed = {(name, in_schema(body, target.schema)) for name, body in _FUNCTION.findall(sql)}
    rows = await session.within(query("functions", ""), target.schema, sorted({name for name, _ in landed}))
    return version == WITHOUT_FINGERPRINTS and {(row["name"], row["body"]) for row in rows} == landed


async def refuse_if_newer(session: Session, target: Target) -> None:
    """Raise if a newer program has migrated the database meanwhile."""
    [[version]] = await session.within(query("schema_version", target.schema))
    if version > len(MIGRATIONS):
        raise too_new(version, len(MIGRATIONS), running=True)


async def _migrate(session: Session, target: Target, migration: Migration) -> None:
    if migration.number == 1:
        await session.script(f"CREATE SCHEMA IF NOT EXISTS {target.schema}")
    await session.script(in_schema(migration.text, target.schema))
    await session.within(query("set_version", target.schema), migration.number)


async def _load_kinds(session: Session, target: Target, catalogue: Catalogue) -> None:
    """Load the legal transitions; keep kinds that this program lacks."""
    for name, kind in sorted(catalogue.items()):
        states = sorted(kind.states)
        paths = sorted({*kind.paths, *(("", state) for state in states if kind.allows("", state))})
        await session.within(
            query("load_kind", target.schema),
            name,
            kind.initial,
            digest_of(kind),
            states,
            [state in kind.ended for state in states],
            _column(paths, 0),
            _column(paths, 1),
        )


def _column(pairs: Sequence[tuple[str, str]], number: int) -> list[str]:
    return [pair[number] for pair in pairs]
