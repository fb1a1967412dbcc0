"""A run over its jobs as a model.

The jobs are those of `verify.jobs`, decided by the production deciders. Runs have no system yet, so
here the table of the run and the couplings between run and job are followed directly: what a job's
step causes in its run is carried as a message that may be late or come twice, and never gets lost.

    plan        an environment with a run
    decisions   the table of the run, asked once for each pair of value and event
    world       run, planner, reporter and jobs: what can happen next
"""
