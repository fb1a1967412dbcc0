"""Writes down the schema as the database describes it, after all migrations: `schema.txt`.

    .venv/bin/python tests/store/postgres/dump_schema.py

A test holds the file to what the migrations add up to, so that a change of the schema shows in review.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg

PINNED = Path(__file__).with_name("schema.txt")

_PARTS = {
    "columns": """
        SELECT table_name, column_name, data_type, collation_name, is_nullable, column_default, is_identity
        FROM information_schema.columns WHERE table_schema = $1 ORDER BY table_name, ordinal_position""",
    "constraints": """
        SELECT rel.relname, con.conname, pg_get_constraintdef(con.oid)
        FROM pg_constraint AS con JOIN pg_class AS rel ON rel.oid = con.conrelid
        JOIN pg_namespace AS n ON n.oid = rel.relnamespace
        WHERE n.nspname = $1 AND con.contype <> 'n' ORDER BY 1, 2""",
    "indexes": "SELECT indexdef FROM pg_indexes WHERE schemaname = $1 ORDER BY indexname",
    "settings": """
        SELECT rel.relname, rel.reloptions FROM pg_class AS rel
        JOIN pg_namespace AS n ON n.oid = rel.relnamespace
        WHERE n.nspname = $1 AND rel.reloptions IS NOT NULL ORDER BY 1""",
    "triggers": """
        SELECT pg_get_triggerdef(trigger.oid) FROM pg_trigger AS trigger
        JOIN pg_class AS rel ON rel.oid = trigger.tgrelid JOIN pg_namespace AS n ON n.oid = rel.relnamespace
        WHERE n.nspname = $1 AND NOT trigger.tgisinternal ORDER BY rel.relname, trigger.tgname""",
    "functions": """
        SELECT f.proname, pg_get_function_identity_arguments(f.oid), f.proconfig, md5(f.prosrc)
        FROM pg_proc AS f JOIN pg_namespace AS n ON n.oid = f.pronamespace
        WHERE n.nspname = $1 ORDER BY 1, 2""",
    "views": "SELECT viewname FROM pg_views WHERE schemaname = $1 ORDER BY viewname",
}


async def dump(url: str, schema: str = "interlock") -> str:
    """The schema as text, one thing a line."""
    connection = await asyncpg.connect(url)
    try:
        lines = []
        for part, sql in _PARTS.items():
            lines.append(f"# {part}")
            lines += [
                " | ".join(_word(value) for value in row) for row in await connection.fetch(sql, schema)
            ]
        return "\n".join(lines) + "\n"
    finally:
        await connection.close()


def _word(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


async def main() -> None:
    """Make a database, open a store on it, and write down what is there then."""
    from interlock.store.postgres import PostgresStore
    from interlock.testing.servers import postgres_server
    from interlock.testing.store_contract import CATALOGUE

    with postgres_server(durable=False) as server:
        url = server.new_database()
        store = PostgresStore(url, CATALOGUE)
        await store.open()
        await store.close()
        PINNED.write_text(await dump(url), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
