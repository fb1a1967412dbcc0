"""Models of jobs and of runs over jobs: production's deciders, explored by the model checker.

What is claimed of them is in `interlock_verification.claims`.

Reading order:

    plan           an environment, written as data
    budget         how many faults and user requests are left
    job_values     messages, workers and records as small numbers; equal ones are one number
    job_decisions  each decider, asked once for each pair of value and message
    job_world      orchestrators, workers, users, network and clock: what can happen next
    job_symmetry   which states differ in names only
    run_decisions  the deciders of a run
    run_world      a run, its planner and reporter, and its jobs
"""
