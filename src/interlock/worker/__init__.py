"""The worker: how somebody's function becomes a task, and how a process executes it under a lease.

What handlers and whoever submits them touch, in reading order:

    tasks         `@task`, and the registry in which a worker finds it
    functions     which functions can be tasks, and where they run
    importing     from `MODULE` on the command line to the tasks in it
    arguments     the arguments of a function as JSON, and back
    codec         values as JSON, never pickle
    misfits       what about a value JSON cannot hold, and where it is
    context       what a handler is given: progress, log, checkpoint, cancelled, fence
    unsent        what a handler has said and nobody has sent yet
    simulations   `@simulation`: generators and step functions as stepped work
    course        the course of one of them, and what is to be said about it
    driving       its steps, driven to the end

The process, in reading order:

    port          what it needs of an orchestrator, wherever that is
    settings      what it can be told to do differently
    entry         `run_worker`: signals, logging, the event loop, and the exit code
    signals       SIGTERM and SIGINT: a flag that is raised once and never lost
    process       the loop; the process table decides every step of it
    connection    its connection: opened, lost, released
    storetime     the store's time as the process knows it
    waiting       waiting for one of several things, and being woken from anywhere
    crew          who works beside the loop, put together
    executing     its tasks: begun when there is room, stopped when they must be, seen to their end
    stopping      how a handler is stopped, or left behind
    lanes         one per executor: what runs in it, what waits for it
    running       one leased attempt; the task table decides every step of it
    outcomes      how a handler ended, made into what is reported
    reporting     reports, batched: sent whenever the port is free
    renewing      leases, renewed together from a thread of their own
    simulating    what simulations say, from a thread of their own
    supervising   every loop is watched, and what falls silent is named
    orphans       ended processes that nobody else will fetch
    executors/    the ways to run a handler: async, thread, process, shell

What it says about itself:

    watching      who is told about transitions
    logs          one line per event, JSON into a pipe, readable on a terminal
    metrics       for Prometheus
    tracing       spans, for whoever has set up OpenTelemetry
"""
