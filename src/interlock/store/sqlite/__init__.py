"""The embedded store: one SQLite file. `store` says how it is read."""

from interlock.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
