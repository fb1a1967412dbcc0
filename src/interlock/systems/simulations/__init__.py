"""Simulations: long, stepped work that can be paused and resumed, and survives its worker.

Reading order:

    body         the two records of a simulation: what it is, and its heartbeat
    aggregate    what an event makes of both
    validation   what can be submitted
    reconciler   decide messages of workers, and what follows from the end of a job
    manager      what people do with simulations
    views        how a simulation is shown
    state_files  import runs from state files
"""
