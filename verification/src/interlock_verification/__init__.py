"""Verification of Interlock by the code that runs: model checker, mutants, worlds and chaos.

A distribution of its own, `interlock-verification`, for whoever develops Interlock. The deciders are pure,
so the functions that decide in production are explored exhaustively: there is no second specification that
could differ from the first. The model checker itself is `interlock.testing.model_checker`.

Reading order:

    claims           what is claimed of jobs, as data: asked by the models, the worlds and chaos
    models           jobs, workers, network, orchestrators and clock as a model; a run over its jobs
    environments     small worlds, written as data; explored one after the other or side by side
    single_machines  each machine alone, put to every order of its events
    mutation         the tables, broken in every way, and how many of those are noticed
    worlds           whole installations on virtual time
    chaos            real processes, real databases, real faults
    cli              `interlock verify model|mutate|world`; `report` and `world_report` print the findings
"""
