"""Fault injection: `make chaos`, and a short round of it in `make test`.

Every harness injects a fault into a store, or into all programs that use it, while clients count, and then
checks that each acknowledged step is stored exactly once. Each also has a broken mode, in which a guarantee
is disabled on purpose: a harness that does not detect this is useless.

Reading order:

    counters         the clients, and how their work is checked afterwards
    verdict          the result of a harness
    databases        a private database of each kind
    kill_committer   kill -9 of the process that commits, again and again
    kill_server      kill -9 and restart of the database server under load
    promotion        the primary is killed, and its stand-by takes over
    eaten_reply      the commit is done, and the response is lost
    black_hole       no response at all
    disk_full        no space for the next commit
    forgetful_disk   a disk that loses all writes that were not flushed
    power_loss       a power loss at any write
    random_faults    thousands of lost requests and responses by seeded plans
    forks            processes that start at once
    system           the whole system as processes: servers, workers, and all faults

Why: decisions 0162 and 0163.
"""
