"""Verification of Interlock with its production code: model checker, mutants, worlds and chaos.

A separate distribution, `interlock-verification`, for developers of Interlock. The deciders are pure, so the
functions that decide in production are explored exhaustively: there is no second specification that could
differ from the first. The model checker itself is `interlock.testing.model_checker`.

Reading order:

    claims           claims about jobs, as data: checked by the models, the worlds and chaos
    required_events  events that must occur, so that no claim holds vacuously
    models           jobs, workers, network, orchestrators and clock as a model; a run over its jobs
    environments     small worlds, written as data; explored sequentially or in parallel
    single_machines  each machine alone, with every order of its events
    mutation         every single fault in the tables, and how many are detected
    worlds           whole installations on virtual time
    chaos            real processes, real databases, real faults
    cli              `interlock verify model|mutate|world`; `report` and `world_report` print the findings

Why: decision 0393.
"""
