"""Runs: one evaluation of a change each, planned into jobs, executed, and reported once.

Reading order:

    body         what a run is made of, as its record keeps it; `plans` is what is kept beside it
    draft        a run while it is decided about; `facts` serve it
    plan_validation  whether a plan can be carried out
    commits      a run as it has become, with the messages that lead on
    reconciler   hearing what jobs say, and seeing to deadlines
    orders       what a run wants of its jobs, carried out
    preparation  from CREATED to QUEUED; `planning` has the planners
    cancellation  cancels, and giving way to a newer run
    rerun        which jobs are done again; `comparison` is with the last green run
    reporting    from an outcome to REPORTED; the reporters
    runs         what people do with runs; `views`, `explanation` and `columns` show them
    debounce     how news is dealt with at once
"""
