"""The contract on PostgreSQL: the store for many hosts.

Reading order:

    target        what the URL says
    connections   a small pool in which every call has a deadline
    failures      what goes wrong in the driver, in our words
    schema        migrations, the tables that the database enforces, and what is refused at the door
    wave          commits as the columns of one call, and its answer as outcomes
    batch         the same for one change of many records
    writing       which of the two it is, and what is tried first
    claiming      taking what is ready or due
    rows          rows as records and entries, queries as conditions
    waking        who listens, and who tells them
    store         the contract

The work is done by a few functions in the database (`sql/`): a batch of commits is one round trip, a
claim is four. Everything is said with the name of its schema and in transactions that begin and end
in one call, so nothing depends on the session, and a pool between us and the server does no harm.
"""

from interlock.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
