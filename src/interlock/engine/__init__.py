"""The engine joins the tables and the store.

Reading order:

    unit_of_work  load, decide, commit; decide again when somebody was faster
    aggregate     a record as the machines in it; the change that events make of it
    committer     how a commit reaches the store: alone, or together with others
    recovery      what to do when nobody knows whether a commit happened
    clock         the store's time, known without asking each time
    loops         work that repeats, supervised
    retention     what has ended is removed when its time is over
    outbox        effects that must survive a crash
    write_once    records that take one step: open, then settled
    audit         whether the journal and the records agree
"""
