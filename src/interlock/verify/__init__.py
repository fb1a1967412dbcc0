"""Verification by the code that runs.

The deciders are pure, so the functions that decide in production can be explored exhaustively: there
is no second specification that could differ from the first.

Reading order:

    claims         what is to be true: always, sometimes, eventually
    model_checker  the model checker: every state that can be reached, breadth first
    seen           which states were met, in twelve bytes each
    reachability   from which states a goal can still be reached
    jobs           jobs, workers, network, orchestrators and clock as a model
    runs           a run over its jobs
    environments   small worlds, written as data
    exploration    environments one after the other or side by side, with the time they took
    lifecycles     a single machine of one's own, put to every order of its events
    mutants        the tables, broken in every way
    mutation       how many of those are noticed
"""
