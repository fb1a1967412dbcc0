"""Runs: one evaluation of a change each, planned into jobs, executed, and reported once.

Reading order:

    body         what a run is made of, as its record keeps it; `plans` is what is kept beside it
    draft        a run while it is decided about; `facts` serve it
    checking     whether a plan can be carried out
    committing   a run as it has become, with the messages that lead on
    keeping      hearing what jobs say, and seeing to deadlines
    orders       what a run wants of its jobs, carried out
    preparing    from CREATED to QUEUED; `planning` has the planners
    stopping     cancels, and giving way to a newer run
    rerunning    which jobs are done again; `comparing` is with the last green run
    reporting    from an outcome to REPORTED; the reporters
    runs         what people do with runs; `viewing`, `explaining` and `finding` show them
    ringing      how news is dealt with at once
"""
