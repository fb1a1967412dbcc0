"""The whole system: servers and workers as processes, on a real database, under every fault.

Reading order:

    tasks           the tasks of the workers
    broken_rules    the rules that a broken fleet runs without
    program         the program of a process of the fleet
    zygote          the process from which the others are forked
    members         one server or worker: started, killed, frozen, asked to shut down
    fleet           all of them, with the connections between them
    clients         submitters, which retry until acknowledged; and a runner that reports too late
    lag             how long each has waited for a processor
    fault_injector  the faults
    history         the journal, read back: grants and their outcomes
    judge           the broken guarantees
    harness         one run from beginning to end
"""
