"""Models of jobs and of runs over jobs: production's deciders, explored by the model checker.

The claims about them are in `interlock_verification.claims`.

Reading order:

    plan           an environment, written as data
    budget         the remaining faults and user requests
    job_values     messages, workers and records as small numbers; equal ones are one number
    job_decisions  each decider, called once for each pair of value and message
    job_world      orchestrators, workers, users, network and clock: the possible steps
    job_symmetry   states that differ only in names
    run_decisions  the deciders of a run
    run_world      a run, its planner and reporter, and its jobs
"""
