"""Faults, shown and survived: `make chaos`, and a short round of it in `make test`.

Every harness does something terrible to a store, or to all that works on it, while clients count on it,
and then looks whether each step that was acknowledged is there, once. Each also has a broken mode, in
which a promise is given up on purpose: a harness that does not notice that is no harness.

Reading order:

    counters         what the clients do, and how it is judged afterwards
    verdict          what a harness answers
    databases        a private database of each kind
    kill_committer   kill -9 of the process that commits, again and again
    kill_server      kill -9 and restart of the database server under load
    promotion        the primary is killed, and its stand-by takes over
    eaten_reply      the commit is done, and the answer is lost
    black_hole       nobody answers at all
    disk_full        there is no room for the next commit
    forgetful_disk   a disk of which only what was flushed survives
    power_loss       the power goes at any write
    random_faults    thousands of lost requests and answers by seeded plans
    forks            processes that begin at once
    system           the whole system as processes: servers, workers, and everything that can befall them
"""
