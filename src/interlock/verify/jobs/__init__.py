"""Jobs as a model: the deciders of the orchestrator, called as they are in production.

Reading order:

    plan        an environment, written as data
    codes       messages and workers as small numbers
    values      a job's record without what no decision depends on; equal ones are one number
    decisions   each decider, asked once for each pair of value and message
    judge       what is claimed of a value, and of the step from one to another
    spares      how many faults and wishes are left
    orchestrators  what orchestrators do: hear, sweep, decide, commit
    actors      what workers, users and the network do
    world       all of that as a model: where it begins, and what is seen of a state
    symmetry    which states differ in names only
    stories     a step in words
"""
