"""Models of jobs and of runs over jobs: production's deciders, explored by the model checker.

Reading order:

    plan           an environment, written as data
    budget         how many faults and user requests are left
    job_values     messages, workers and records as small numbers; equal ones are one number
    job_decisions  each decider, asked once for each pair of value and message
    job_judge      what is claimed of a value, and of the step from one to another
    job_world      orchestrators, workers, users, network and clock: what can happen next
    job_symmetry   which states differ in names only
    run_decisions  the deciders of a run
    run_world      a run, its planner and reporter, and its jobs
"""
