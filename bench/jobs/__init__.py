"""The queue of Interlock beside other Python job queues, on the same PostgreSQL, SQLite and Redis.

Reading order:

    contenders  who is compared on which store, with how many jobs, and the aims
    peers/      each contender behind one small conversation, and the handlers that all of them execute
    venvs       a virtual environment for each, from pinned requirements
    places      the databases: private servers, and an empty place for each turn
    talking     the conversation, seen from here
    turns       one turn of one contender, and the proof that every job was done once
    drains      submit in bulk and drain, with one worker process and with two
    idle        how soon a single job begins, and what a worker holds that has nothing to do
    crowd       our own queue with a million jobs in it
"""
