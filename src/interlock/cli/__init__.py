"""The command line. `main` is the program; each noun has a module of its own.

    jobs, queues, runs, simulations, workload, workers, record, tokens, webhooks, db, machine
                       a group of commands each: names, arguments, options, help
    supervisor, serving, dev, agent, runner_check
                       commands that run a process
    verify             a command of another distribution, interlock-verification
    <noun>_views       find what the user named, and show it
    <noun>_actions     change it: submit, cancel, retry, pause
    job_logs, job_artifacts   what jobs have written and left, of one job or of all jobs of a run

    options            arguments and options that several groups share
    project            `interlock.toml` (`project_ci`: its sections for webhooks, secrets and reports)
    connection         a store or a server, for the length of one command
    bulk_actions       one action on every record that a filter matches
    journal            steps of the journal, and jobs followed to their end
    output, tables, live   lines and JSON; tables on a terminal; screens that stay up to date
    errors             errors for people and for programs

The modules of command groups import the rest when a command runs, so that `--help` is quick. Only
`tables`, `live`, `workload_screen` and `demo` import rich.
"""
