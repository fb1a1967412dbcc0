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

    record:<kind>:<id>        hash     the record; times are microseconds, body and marks are JSON
    ready:<kind>:<lane>       sorted   by rank; `lanes:<kind>:<queue>` is the set of a queue's lanes
    handlers                  hash     the number of each handler, by which a lane ends: see lua/common.lua
    delayed:<kind>            sorted   by the time at which they become ready
    due:<kind>                sorted   by deadline
    hold:<number>             string   what a claimer has taken; `held` sorts the numbers by when they run out
    created: state: parent: queue: label:   sorted, by creation, for finding and counting
    ended:<kind>:<state>      sorted   by the last change, for pruning
    journal                   stream   ids are <epoch>-<number>; `history:<kind>:<id>` lists those of a record
    request:<id>              hash     with an expiry; `requests` sorts them by it
    table:<kind>              set      <state>><state>, each change that is allowed; `ends:<kind>`: its ends
    migrations                hash     fingerprint of each migration that was applied
    schema tables clock epoch identity sequence holds pruned floor    single values
    wake                      channel  a word for each batch that was committed
"""

from interlock.store.redis.store import RedisStore

__all__ = ["RedisStore"]
