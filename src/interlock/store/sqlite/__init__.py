"""The embedded store: one SQLite file. `store` has the reading order."""

from interlock.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
