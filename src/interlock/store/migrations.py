"""Schemas as a sum of numbered SQL files.

Each database has a folder `sql/` with files `0001_name.sql`, `0002_…`, which are only ever added. The
schema is what they add up to, a test holds that, and a database remembers how far it has come. A
database that is further than the program is refused: an older program must not guess.
"""

from __future__ import annotations

import re
from importlib import resources

import msgspec

from interlock.errors import SchemaTooNew

_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")


class Migration(msgspec.Struct, frozen=True):
    """One step forward; it is applied whole or not at all."""

    number: int
    name: str
    sql: str


def migrations_of(package: str) -> tuple[Migration, ...]:
    """The migrations in the `sql` folder of a package, in order, without a gap."""
    files = resources.files(package).joinpath("sql").iterdir()
    found = [
        Migration(int(match[1]), match[2], file.read_text(encoding="utf-8"))
        for file in files
        if (match := _NAME.fullmatch(file.name))
    ]
    found.sort(key=lambda migration: migration.number)
    numbers = [migration.number for migration in found]
    if numbers != list(range(1, len(found) + 1)):
        raise ValueError(f"{package}: the migrations are numbered {numbers}")
    return tuple(found)


def outstanding(migrations: tuple[Migration, ...], applied: int) -> tuple[Migration, ...]:
    """What is left to apply to a database that has come as far as `applied`."""
    newest = migrations[-1].number
    if applied > newest:
        raise SchemaTooNew(
            f"The database has schema version {applied}, this program knows {newest}.",
            todo="Upgrade this program; a newer one has migrated the database.",
            facts={"schema_version": applied, "wanted_version": newest},
        )
    return migrations[applied:]
