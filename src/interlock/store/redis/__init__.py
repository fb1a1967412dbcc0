"""The store on Redis or Valkey: the same promises, kept by Lua scripts that run whole or not at all.

Reading order:

    address     from a URL to a server, and what may be shown of it
    server      what a server says about itself, and whether it will do
    scripts     the Lua files, one for each verb
    faults      from what the driver raises to what a caller can act on
    links       connections, deadlines, and calling a script
    packing     commits and queries on their way to the scripts
    reading     records, entries and outcomes on their way back
    places      where lists and the journal go on
    greeting    what is asked of a server before it is trusted
    wakes       being told that something was committed
    store       the contract

What is where (each key begins with the prefix in braces, so all of them share one slot of a cluster):

    line:<kind>:<id>          string   what changes of a record: nine fields, the body, the result; see below
    given:<kind>:<id>         string   what it was created with, if anything; never written again
    lane:<kind>:<lane>        sorted   what is ready, by rank; `queue:<kind>:<queue>`: the lanes of a queue
    later:<kind>              sorted   by the time at which they become ready
    deadline:<kind>           sorted   by deadline
    taken:<number>            string   what a claimer has taken; `taken` sorts these by when they run out
    created: state: queued: parent: label:   sorted, by creation, for finding and counting
    end:<kind>:<state>        sorted   by the last change, for pruning
    journal                   stream   rows of entries that say the same; ids are <epoch>-<number of the last>
    gone                      hash     by row of the journal, the places of entries that were pruned
    history:<kind>:<id>       list     steps of a record that its line no longer names, and refusals
    request:<id>              hash     with an expiry; `requests` sorts them by it
    path:<kind>               set      <state>><state>, each change that is allowed; `ends:<kind>`: its ends
    migrations                hash     fingerprint of each migration that was applied
    schema tables clock epoch identity sequence entries holds pruned floor    single values
    wake                      channel  a word for each call that has committed something

A line has these fields, each ended by a line break, times in microseconds: version, state, created, updated,
ready, deadline, marks (what it is found by, JSON), the latest steps (`<version> <cursor>`, by commas), and
how many bytes the body has; then body and result. Records that were treated alike have the same line, so a
script reads it, decides and makes the next one once for all of them.
"""

from interlock.store.redis.store import RedisStore

__all__ = ["RedisStore"]
