"""Where records live: one contract, several databases.

Reading order:

    records      what a store keeps, and what it is asked to change
    contract     what every store promises
    catalogue    what a store knows about kinds of record
    ranking      the order in which ready records are given out
    validation   what every store checks of a commit before it goes near the database
    cursors      where a list goes on
    memory       the plainest store; then `sqlite`, `postgres`, `redis`
    migrations   schemas as a sum of numbered files
    urls         one URL chooses the store
"""
