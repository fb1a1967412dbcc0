"""The contract on PostgreSQL: the store for many hosts.

Reading order:

    target                 the URL
    connections            a small pool in which every call has a deadline
    failures               errors of the driver as errors of ours
    schema                 migrations, the tables that the database enforces, and checks at opening
    columns                changes as columns of text
    waves                  commits that touch different records, as one call
    commits                commits as calls of functions in the database, and their answers as outcomes
    claims                 claiming ready or due records
    rows                   rows as records and entries, queries as conditions
    notifier               LISTEN and NOTIFY
    permissions            the privileges of the role
    foreign_transactions   writes in a transaction of the user
    store                  the contract

The work is done by a few functions in the database (`sql/`): a batch of commits is one round trip, a
claim is four. Names are qualified with the schema, and transactions begin and end in one call, so nothing
depends on the session, and a pooler in front of the server does no harm.
"""

from interlock.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
