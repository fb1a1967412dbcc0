"""For tests: Interlock's own, and those of whoever builds on it.

Reading order:

    clocks            a clock that a test moves
    faults            a store whose calls fail by a plan
    servers           real PostgreSQL and Redis servers, private to a test, gone with it
    store_contract    what every store must do, as tests that anybody can run on a store
"""
