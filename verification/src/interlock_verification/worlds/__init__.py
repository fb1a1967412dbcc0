"""Whole worlds on virtual time: the real orchestrators, workers and sweeps, years of them in minutes.

Reading order:

    scheduler    the time of a world, and event loops on it
    worlds       the table of worlds: their actors and their work
    faults       the table of faults, and their times, drawn from a seed
    network      nodes and their processes, the network between them, and the watcher of claims
    storage      the store, seen through connections that break
    actors       orchestrators, workers, agents, clients, operators
    claims       the claims, as tables
    judge        observes every write and answer, and reports facts; `judge_*` for each system
    episode      one episode, from the first start to the last check
    campaign     many of them in parallel; a failing one is shrunk to few faults

Why: decisions 0156 and 0157.
"""
