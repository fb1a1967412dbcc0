"""Stores: one contract, several databases.

Reading order:

    records        records and changes
    contract       the contract of every store
    catalogue      the kinds of record that a store knows
    ranking        the order in which ready records are claimed
    plain_changes  records that are created with nothing but a body, a cheaper way to write
    validation     the checks of a commit before it reaches the database
    cursors        cursors of lists
    memory         the plainest store; then `sqlite`, `postgres`, `redis`
    migrations     schemas as a sum of numbered files
    permissions    the permissions of the user of a store
    transactions   writes in a transaction of the user
    urls           one URL chooses the store
"""
