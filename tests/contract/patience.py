"""Stores that bear a machine which stands still, also in the processes that the suite starts."""

from __future__ import annotations

from tests.waiting import PATIENCE_S

from interlock.store.postgres import PostgresStore, connections
from interlock.testing.store_contract.builders import CATALOGUE

PATIENT_BEGIN = connections.BEGIN.replace(f"'{connections.IDLE_IN_TRANSACTION_S}s'", f"'{PATIENCE_S:.0f}s'")
"""Transactions that the server ends later when nothing happens in them.

That is for clients that hang. One that is killed is noticed at once.
"""


def patient_postgres(url: str) -> PostgresStore:
    """Make a store whose calls and claims bear a machine that stands still."""
    connections.BEGIN = PATIENT_BEGIN
    return PostgresStore(url, CATALOGUE, timeout_s=PATIENCE_S)
