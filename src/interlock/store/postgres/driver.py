"""A connection of the driver that does not ask the server for types that are the same everywhere.

Why: decision 0492.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import asyncpg

ARRAYS = {
    1000: ("bool", 16),
    1001: ("bytea", 17),
    1005: ("int2", 21),
    1007: ("int4", 23),
    1009: ("text", 25),
    1016: ("int8", 20),
    1022: ("float8", 701),
    1185: ("timestamptz", 1184),
}
"""Array types of our statements: the name and the number of their elements, the same on every server."""


class _NoStatement:
    """Stands for the statement with which the driver would have asked for types."""

    name = "none"


class ArrayAwareConnection(asyncpg.Connection):
    """A connection that knows array types.

    The driver asks the server about every array type that it meets, on each connection anew, with a query
    that costs some 10 ms of the server's time. A driver without this method asks as before.
    """

    async def _introspect_types(self, typeoids: Iterable[int], timeout: float | None) -> Any:
        oids = list(typeoids)
        if any(oid not in ARRAYS for oid in oids):
            return await super()._introspect_types(oids, timeout)  # type: ignore[misc]
        nothing = dict.fromkeys(("range_subtype", "attrtypoids", "attrnames", "basetype"))
        types = [
            {
                **nothing,
                "oid": oid,
                "name": f"_{ARRAYS[oid][0]}",
                "ns": "pg_catalog",
                "kind": b"b",
                "elemtype": ARRAYS[oid][1],
                "elemtype_name": ARRAYS[oid][0],
                "elemdelim": b",",
            }
            for oid in oids
        ]
        return types, _NoStatement
