"""The statements of the store, one per file, each loaded once."""

from __future__ import annotations

from functools import cache
from importlib import resources

PLACEHOLDER = "interlock."
"""The schema in the files, so that they can be tried in a shell."""


def in_schema(sql: str, schema: str) -> str:
    """Return the statement for another schema."""
    return sql.replace(PLACEHOLDER, f"{schema}.")


@cache
def query(name: str, schema: str) -> str:
    """Return the statement of one file."""
    text = resources.files(__package__).joinpath(f"{name}.sql").read_text(encoding="utf-8")
    return in_schema(text, schema)
