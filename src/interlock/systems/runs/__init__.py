"""Runs: one evaluation of a change each, planned into jobs, executed, and reported once.

Reading order:

    body              the record of a run, and the columns by which it is found; `plans` is kept beside it
    aggregate         the working copy of a run
    plan_validation   whether a plan can be carried out, and its permissions
    preparation       from CREATED to QUEUED, and reruns; `workflows` has the planners
    new_jobs          the jobs that a plan creates
    reconciler        job changes in, commits of runs and orders to their jobs out; `orders` are those
    progress          runs in the commit in which their jobs end; `run_cache` keeps them
    cancellation      cancel requests, and superseding by a newer run
    reports           from an outcome to REPORTED; the reporters
    runs              the operations on runs, and the sweeper; `views` and `search` show and find them
    triggers          webhooks that start runs; `trigger_events` reads them, `webhook_security` verifies them
    failure_analysis  why jobs failed, for people; `job_history` finds flaky jobs
    caches            files that jobs keep for later jobs
    graph             a run as a graph; `graph_text` and `graph_export` draw it
    settings          triggers and reporters, as configured
"""
