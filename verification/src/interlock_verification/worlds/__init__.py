"""Whole worlds on virtual time: the real orchestrators, workers and sweeps, years of them in minutes.

Reading order:

    scheduler    the time of a world, and event loops on it
    worlds       the table of worlds: their actors and their work
    faults       the table of faults, and their times, drawn from a seed
    network      processes, and the network between them
    storage      the store, seen through connections that break
    actors       orchestrators, workers, agents, clients, operators
    judge        the claims, checked at every write; `judge_*` for runs, simulations, workers and the fleet
    episode      one episode, from the first start to the last check
    campaign     many of them in parallel; a failing one is shrunk to few faults

Why: decisions 0156 and 0157.
"""
