"""Whole worlds on virtual time: the real orchestrators, workers and sweeps, years of them in minutes.

Reading order:

    scheduler    the time of a world, and event loops on it
    worlds       the table of worlds: who is there, and what there is to do
    faults       the table of faults, and what goes wrong when, drawn from a seed
    network      processes, and the network between them
    storage      the store, seen through connections that break
    actors       who lives there: orchestrators, workers, agents, clients, operators
    judge        what is claimed, asked of every write; `judge_*` for runs, simulations, workers and the fleet
    episode      one episode, from the first start to the last check
    campaign     many of them, side by side; a failing one with as few faults as it takes
"""
