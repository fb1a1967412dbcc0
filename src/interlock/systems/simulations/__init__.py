"""Simulations: long, stepped work that can be paused and resumed, and survives its worker.

Reading order:

    settings     when a simulation is stale or silent
    body         the two records of a simulation: its own, and its heartbeat
    aggregate    the effect of an event on both
    validation   the validation of specs
    reconciler   decide about messages of workers, and about the end of a job
    manager      the operations on simulations
    views        simulations for display
    state_files  import runs from state files
"""
