"""Stores: one contract, several databases.

Reading order:

    records      records and changes
    contract     the contract of every store
    catalogue    the kinds of record that a store knows
    ranking      the order in which ready records are claimed
    validation   the checks of a commit before it reaches the database
    cursors      cursors of lists
    memory       the plainest store; then `sqlite`, `postgres`, `redis`
    migrations   schemas as a sum of numbered files
    permissions  the permissions of the user of a store
    urls         one URL chooses the store
"""
