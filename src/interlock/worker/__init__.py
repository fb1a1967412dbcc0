"""The worker: how a function becomes a task, and how a process executes it under a lease.

Tasks and handlers, in reading order:

    tasks               `@task`, and the registry in which a worker finds it
    imports             from `MODULE` on the command line to the module
    functions           which functions can be tasks, and their arguments as JSON
    signatures          their arguments and results, for type checkers
    codec               values as JSON, never pickle; job specs
    composition         chains, groups and chords of jobs
    schedules, limits   schedules and limits that programs declare
    middleware          code of users around handlers and submissions
    context             the context of a handler: progress, log, checkpoint, cancelled, fence
    secrets             the secrets of a job, by name
    child_jobs          jobs that a handler submits, and how it waits for them
    postponement        exceptions that postpone a job
    simulations         `@simulation`: stepped work, its context, and the loop that drives it
    transfers           artifacts and caches, between a file and the orchestrator
    archives            files of a job packed as a tar, without following links
    extraction          untrusted archives, read and unpacked safely

The way of a job through the process, in reading order:

    process             the main loop: connect, poll, claim, back off, shut down
    task_runner         tasks: started when there is room, stopped when they must be
    running_task        one leased attempt, and the messages about it
    machines            the process and task tables, and how their couplings are carried out
    executors           the ways to run a handler: event loop, thread; `process_executor`: a process for each
    cohorts             similar jobs of one claim, executed in a loop and reported together
    outcomes            the end of a handler, as a result or a failure
    leases              heartbeats that renew leases, and batched reports

Around it:

    entry               `run_worker`: signals, logging, the event loop, and the exit code
    settings            options of a worker process
    environment         the common things of its parts: identity, clocks, log, observers
    port                the interface to an orchestrator; `http` is the port over HTTP
    components          the parts beside the main loop; orders of the supervisor
    side_loop           a thread with an event loop and a connection of its own
    supervisor_client   registration, heartbeats and orders of the worker itself
    simulation_channel  messages of simulations, from a separate thread
    watchdog            detects loops that stall
    host                clocks, threads, waits and signals
    pool                several worker processes on one host
    task_process        the process of one task, and its protocol
    shell, shell_files  `interlock.shell`: steps, checkout; workspaces, artifacts, caches
    captured_output     prints and log records of handlers, as lines of the job's log
    telemetry           log lines and metrics of a worker; `tracing` has its spans
"""
