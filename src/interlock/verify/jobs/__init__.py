"""Jobs as a model: the deciders of the orchestrator, called as they are in production.

Reading order:

    plan        an environment, written as data
    codes       messages and workers as small numbers
    values      a job's record without what no decision depends on; equal ones are one number
    deciding    each decider, asked once for each pair of value and message
    judging     what is claimed of a value, and of the step from one to another
    world       jobs, workers, network, orchestrators and clock: what can happen next
    naming      which states differ in names only
    telling     a step in words
"""
