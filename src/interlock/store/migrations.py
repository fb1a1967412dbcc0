"""Schemas as a sum of numbered files.

Each database has a folder with files `0001_name.sql`, `0002_…` (`.lua` for Redis), which are only ever added.
The schema is their sum, which a test verifies, and a database records its progress, with the fingerprint of
every applied migration.

A released file never changes: a test pins its hash, and a database to which another text was applied under
the same number is refused. A database that is newer than the program is refused as well.

Programs that run while a newer one migrates continue to write, unless the migration begins with the line
`-- incompatible`. Then the database refuses their writes: SQLite and Redis compare a number in each
transaction; on PostgreSQL the migration drops or renames the functions through which they write.

Why: decisions 0275 and 0369.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources

import msgspec

from interlock.errors import SchemaMismatch, SchemaTooNew

_INCOMPATIBLE = "-- incompatible\n"


class Migration(msgspec.Struct, frozen=True):
    """One migration, applied atomically."""

    number: int
    name: str
    text: str

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the text, which the database stores."""
        return _fingerprint_of(self.text)

    @property
    def incompatible(self) -> bool:
        """Whether programs without it must stop writing."""
        return self.text.startswith(_INCOMPATIBLE)


@cache
def _fingerprint_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def migrations_of(package: str, folder: str = "sql", ending: str = "sql") -> tuple[Migration, ...]:
    """Return the migrations in a folder of a package, in order, without a gap."""
    shape = re.compile(rf"(\d{{4}})_([a-z0-9_]+)\.{ending}")
    found = [
        Migration(int(match[1]), match[2], file.read_text(encoding="utf-8"))
        for file in resources.files(package).joinpath(folder).iterdir()
        if (match := shape.fullmatch(file.name))
    ]
    found.sort(key=lambda migration: migration.number)
    numbers = [migration.number for migration in found]
    if numbers != list(range(1, len(found) + 1)):
        raise ValueError(f"{package}: the migrations are numbered {numbers}")
    return tuple(found)


def outstanding(migrations: tuple[Migration, ...], applied: int) -> tuple[Migration, ...]:
    """Return the migrations to apply to a database at version `applied`."""
    if applied > len(migrations):
        raise too_new(applied, len(migrations))
    return migrations[applied:]


def floor_of(migrations: tuple[Migration, ...]) -> int:
    """Return the number of migrations a program must know to write.

    It is 0 if any program may write.
    """
    return max((migration.number for migration in migrations if migration.incompatible), default=0)


def check_fingerprints(
    migrations: tuple[Migration, ...], kept: Mapping[int, str], shown: str, *, todo: str
) -> None:
    """Raise if an applied migration has another text than ours."""
    for migration in migrations:
        found = kept.get(migration.number, migration.fingerprint)
        if found != migration.fingerprint:
            raise SchemaMismatch(
                f"Migration {migration.number:04} ({migration.name}) of {shown} was applied as {found}; this "
                f"program has {migration.fingerprint}. Another build of Interlock made this database. "
                "Nothing was changed.",
                todo=todo,
                facts={"migration": migration.number, "applied": found, "wanted": migration.fingerprint},
            )


def development_schema(version: int, shown: str, *, todo: str) -> SchemaMismatch:
    """Return the error for a schema of a development version.

    The migrations of such a version were changed in place.
    """
    return SchemaMismatch(
        f"{shown} was made by a development version of Interlock (schema version {version}), whose schema "
        "was changed in place afterwards. There is no migration from it. Nothing was changed.",
        todo=todo,
        facts={"schema_version": version},
    )


def too_new(applied: int, known: int, *, running: bool = False) -> SchemaTooNew:
    """Return the error for a database that a newer program has migrated.

    `running` means that this happened under a running program.
    """
    meanwhile = " while this program was running" if running else ""
    return SchemaTooNew(
        f"The database has schema version {applied}, this program knows {known}: "
        f"a newer program has migrated it{meanwhile}. Nothing was written.",
        todo="Upgrade this program and start it again." if running else "Upgrade this program.",
        facts={"schema_version": applied, "wanted_version": known},
    )
