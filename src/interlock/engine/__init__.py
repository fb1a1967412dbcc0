"""The engine joins the tables and the store.

Reading order:

    unit_of_work    load, decide, commit; decide again when another writer was faster
    aggregate       a record as the machines in it; the change that events make of it
    step_templates  steps of records that differ in nothing that decides
    bulk            the same for many records at once: one load, one commit
    committer       how a commit reaches the store: alone, or together with others
    recovery        find out the outcome of a commit whose answer was lost
    coalescer       requests that arrive while a batch is under way, answered together
    loader          group reads of several callers; read everything page by page
    clock           the store's time, without asking each time
    loops           supervised background loops
    debounce        background work soon after a signal, once for many signals
    bus             typed events within a process
    retention       remove ended records after their retention
    outbox          messages that are committed with the change that causes them
    audit           check that the journal and the records agree
"""
