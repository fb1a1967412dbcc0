"""The privileges of a role on the schema and on its objects."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from interlock.store.permissions import Permission, Severity
from interlock.store.postgres.queries import query
from interlock.store.postgres.schema import MIGRATIONS
from interlock.store.postgres.target import Target

_RELATION = re.compile(r"^CREATE (?:OR REPLACE )?(?:TABLE|VIEW) interlock\.(\w+)", re.MULTILINE)
_SEQUENCE = re.compile(r"nextval\('interlock\.(\w+)'\)")
_FUNCTION = re.compile(r"^CREATE (?:OR REPLACE )?FUNCTION interlock\.(\w+)", re.MULTILINE)
_MOST_NAMED = 3


@cache
def _names() -> tuple[list[str], list[str], list[str]]:
    """Return the tables and views, sequences and functions we create.

    The schema may hold objects of others, as `public` does.
    """
    text = "\n".join(migration.text for migration in MIGRATIONS)
    relations, sequences, functions = (
        sorted(set(kind.findall(text))) for kind in (_RELATION, _SEQUENCE, _FUNCTION)
    )
    return relations, sequences, functions


def statement(schema: str) -> tuple[str, tuple[object, ...]]:
    """Return the query for the privileges of this role, and its arguments."""
    return query("permissions", ""), (schema, *_names())


def permissions_in(rows: Sequence[Any], target: Target) -> list[Permission]:
    """Return the permissions of the role, from the answer to the statement."""
    (about,) = (row for row in rows if row["what"] == "schema")
    role, schema = about["name"], target.schema
    if not about["is_made"]:
        return [_unmade(about, role, schema)]
    found = [*_lacking_in_schema(about, role, schema), *_lacking(rows, role, schema)]
    return found or [Permission(sentence=f"The role {role} may read, write and migrate the schema {schema}.")]


def _unmade(about: Any, role: str, schema: str) -> Permission:
    database = about["database"]
    if about["may_make"]:
        return Permission(sentence=f"The role {role} may create the schema {schema} in {database}.")
    return Permission(
        sentence=f"The role {role} may not create the schema {schema} in the database {database}.",
        missing=Severity.NOW,
        todo=f"As the owner of the database: GRANT CREATE ON DATABASE {database} TO {role}",
    )


def _lacking_in_schema(about: Any, role: str, schema: str) -> Iterator[Permission]:
    if "USAGE" in about["privileges"]:
        yield Permission(
            sentence=f"The role {role} lacks USAGE on the schema {schema}: it can read nothing in it.",
            missing=Severity.NOW,
            todo=f"GRANT USAGE ON SCHEMA {schema} TO {role}",
        )
    missing = ["CREATE on it"] if "CREATE" in about["privileges"] else []
    missing += [] if about["owns"] else ["the ownership of its tables"]
    if missing:
        yield Permission(
            sentence=f"The role {role} cannot migrate the schema {schema}: it lacks {' and '.join(missing)}.",
            missing=Severity.LATER,
            todo=f"Before programs of a new version start, run as {about['owner'] or 'the owner'}: "
            "interlock db migrate",
        )


def _lacking(rows: Sequence[Any], role: str, schema: str) -> Iterator[Permission]:
    """Yield the missing privileges, those that are the same together.

    They are about tables, sequences and functions.
    """
    alike: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row["what"] != "schema":
            alike.setdefault((row["what"], ", ".join(row["privileges"])), []).append(row["name"])
    if any("SELECT, " in privileges for _, privileges in alike):
        alike.pop(("table", "SELECT"), None)  # views, which the same GRANT is about
    for (what, privileges), names in alike.items():
        some = ", ".join(names[:_MOST_NAMED])
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        yield Permission(
            sentence=f"The role {role} lacks {privileges} on the {what}{'s' if len(names) > 1 else ''} "
            f"{some}{more} of the schema {schema}.",
            missing=Severity.NOW,
            todo=f"GRANT {privileges} ON ALL {what.upper()}S IN SCHEMA {schema} TO {role}",
        )
