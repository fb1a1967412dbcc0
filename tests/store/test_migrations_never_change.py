"""A migration that has landed is somebody's data: it never changes, and every file has its hash here.

After adding a migration:

    .venv/bin/python tests/store/test_migrations_never_change.py

prints its line. Never replace a line: write another migration. Keep a store of the schema before it as well:
`tests/fixtures/stores/make.py`.
"""

from __future__ import annotations

import pytest

from interlock.store.migrations import Migration
from interlock.store.postgres.schema import MIGRATIONS as POSTGRES
from interlock.store.redis.scripts import MIGRATIONS as REDIS
from interlock.store.sqlite.database import MIGRATIONS as SQLITE

LANDED = """
postgres 0001 tables 0174a58a7b08320b
postgres 0002 enforcement 7cf7addc6cbceae1
postgres 0003 commit 2b4ee8d5a9c6c00d
postgres 0004 claim 7c825f6d9400edcd
postgres 0005 identity 53dbe2a44e67db89
postgres 0006 prune a801094ccc63b6c9
postgres 0007 alike c38e4bcbb0b7d78c
postgres 0008 applied_migrations da5edea040525252
postgres 0009 restored 8f14882f7385f6c1
postgres 0010 handlers 2e2bf37acdd5542b
postgres 0011 quiet_conflicts be65fd571d102828
postgres 0012 storeys 46ea4aed6cae6627
postgres 0013 journal 875ab0482a9577b8
postgres 0014 batch 15efb2ebcd50c642
postgres 0015 commit 94c4ee05d505558c
postgres 0016 claim eaebfcf024e0ac23
postgres 0017 single 462e5c28720036e4
postgres 0018 prune_by_queue d6372c12192c9e4c
postgres 0019 foreseen 0fa549efcd6cac3f
postgres 0020 pair 83a7b48f7e0ae61b
postgres 0021 fill c3f9c93b63a49021
postgres 0022 plain a3ce203f2b04309f
sqlite 0001 records_and_journal ebdae08e74d14f8b
sqlite 0002 applied_migrations 064c3ac1daac7aef
sqlite 0003 identity b521d767d8f489a9
sqlite 0004 handlers f536415b9867f851
sqlite 0005 three_parts 1acd9b20aeb5b083
redis 0001 layout 8b6a125d1335c457
redis 0002 lines 2cf857b67541de51
"""


def lines() -> list[str]:
    stores = {"postgres": POSTGRES, "sqlite": SQLITE, "redis": REDIS}
    return [
        f"{store} {migration.number:04} {migration.name} {migration.fingerprint}"
        for store, migrations in stores.items()
        for migration in migrations
    ]


def test_no_migration_that_has_landed_was_changed() -> None:
    assert lines() == LANDED.split("\n")[1:-1], "Write a new migration instead of changing one that landed."


def test_a_changed_migration_has_another_fingerprint() -> None:
    one = Migration(1, "tables", "CREATE TABLE a (b);\n")
    assert one.fingerprint != Migration(1, "tables", "CREATE TABLE a (c);\n").fingerprint


@pytest.mark.parametrize(
    ("text", "incompatible"),
    [("-- incompatible\nDROP TABLE a;\n", True), ("-- Makes b.\nCREATE TABLE b (c);\n", False)],
)
def test_a_migration_is_incompatible_with_older_writers_only_if_its_text_declares_it(
    text: str, incompatible: bool
) -> None:
    assert Migration(2, "change", text).incompatible is incompatible


if __name__ == "__main__":
    print("\n".join(lines()))
