"""The claims that worlds check, as tables: each is a name, a sentence, and a predicate over one type of fact.

A judge observes a part of the world and reports facts; `ClaimWatcher.check` finds the claims about facts of
that type. A fact describes itself in words (`str`), which are printed with the claim that it breaks.

Reading order:

    jobs          clients, handlers and repeated reports
    runs          the states, outcomes and jobs of runs
    trees         parents, children and quotas
    keys          unique keys
    limits        slots of limits
    signals       waits and their answers
    simulations   steps, saved states and results
    workers       the supervisor's records, paused and quarantined workers
    fleet         agents, drives and results
    episodes      processes, time, and the end of an episode

Claims about jobs that the model checker and chaos also check are in `interlock_verification.claims`.
"""
