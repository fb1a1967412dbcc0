"""The store on Redis or Valkey: the same guarantees, with atomic Lua scripts.

Reading order:

    connections  the URL, connections, deadlines, calls of scripts, and errors of the driver
    handshake    the checks of a server at opening, and on every new connection
    permissions  the commands that the user may use
    scripts      the Lua files, one for each verb
    codec        commits and queries on their way to the scripts, records and outcomes on their way back
    store        the contract

Keys (each begins with the prefix in braces, so all of them share one slot of a cluster):

    line:<kind>:<id>          string   the mutable part of a record: nine fields, the body, the result; see
below
    given:<kind>:<id>         string   its input, if any; never written again
    lane:<kind>:<lane>        sorted   ready records, by rank; `queue:<kind>:<queue>`: the lanes of a queue
    later:<kind>              sorted   by the time at which they become ready
    deadline:<kind>           sorted   by deadline
    taken:<number>            string   the records of a claimer; `taken` sorts these by expiry
    created: state: queued: parent: label:   sorted, by creation, for finding and counting
    end:<kind>:<state>        sorted   by the last change, for pruning
    journal                   stream   rows of equal entries; ids are <epoch>-<number of the last>
    gone                      hash     by row of the journal, the places of pruned entries
    history:<kind>:<id>       list     steps of a record that its line no longer names, and refusals
    request:<id>              hash     with an expiry; `requests` sorts them by it
    path:<kind>               set      <state>><state>, each legal change; `ends:<kind>`: its final states
    migrations                hash     fingerprint of each applied migration
    schema tables clock epoch identity sequence entries holds pruned floor    single values
    wake                      channel  a message for each call that has committed something

A line has these fields, each ended by a line break, times in microseconds: version, state, created, updated,
ready, deadline, marks (its indexed fields, JSON), the latest steps (`<version> <cursor>`, by commas), and the
length of the body in bytes; then body and result. Records that had the same changes have the same line, so a
script reads it, decides and makes the next one once for all of them.
"""

from interlock.store.redis.store import RedisStore

__all__ = ["RedisStore"]
