"""Where records live: one contract, several databases.

Reading order:

    records      what a store keeps, and what it is asked to change
    contract     what every store promises
    catalogue    what a store knows about kinds of record
    ranking      in which order ready records are given out
    checking     what every store asks of a commit before it goes near the database
    memory       the plainest store; then `sqlite`, `postgres`, `redis`
"""
