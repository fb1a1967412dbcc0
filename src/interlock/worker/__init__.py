"""The worker: how somebody's function becomes a task, and how a process executes it under a lease.

What handlers and whoever submits them touch, in reading order:

    tasks         `@task`, and the registry in which a worker finds it
    functions     which functions can be tasks, and where they run
    imports       from `MODULE` on the command line to the tasks in it
    arguments     the arguments of a function as JSON, and back
    codec         values as JSON, never pickle
    json_errors   what about a value JSON cannot hold, and where it is
    context       what a handler is given: progress, log, checkpoint, cancelled, fence
    outgoing      what a handler has said and nobody has sent yet
    simulations   `@simulation`: generators and step functions as stepped work
    simulation_context  the course of one of them, and what is to be said about it
    simulation_driver  its steps, driven to the end

The process, in reading order:

    port          what it needs of an orchestrator, wherever that is
    settings      what it can be told to do differently
    entry         `run_worker`: signals, logging, the event loop, and the exit code
    signals       SIGTERM and SIGINT: a flag that is raised once and never lost
    process       the loop; the process table decides every step of it
    connection    its connection: opened, lost, released
    store_time    the store's time as the process knows it
    wakeups       waiting for one of several things, and being woken from anywhere
    components    who works beside the loop, put together
    task_runner   its tasks: begun when there is room, stopped when they must be, seen to their end
    stopper       how a handler is stopped, or left behind
    lanes         one per executor: what runs in it, what waits for it
    running_task  one leased attempt; the task table decides every step of it
    outcomes      how a handler ended, made into what is reported
    reporter      reports, batched: sent whenever the port is free
    renewer       leases, renewed together from a thread of their own
    simulation_channel  what simulations say, from a thread of their own
    watchdog      every loop is watched, and what falls silent is named
    orphans       ended processes that nobody else will fetch
    executors/    the ways to run a handler: async, thread, process, shell

What it says about itself:

    observers     who is told about transitions
    logs          one line per event, JSON into a pipe, readable on a terminal
    metrics       for Prometheus
    tracing       spans, for whoever has set up OpenTelemetry
"""
