"""The command line. `main` is the program; each noun has a module of its own.

    jobs, runs, simulations, schedules, workers, queues, records, workloads, tokens, webhooks, machines, db
                       the commands of a noun: names, arguments, options, help
    server, dev, agent, runner_check
                       commands that run a process (`supervisor` is in `workers`)
    verify             a command of another distribution, interlock-verification

    nouns              the verbs that all nouns share: list, show, history, explain, and actions on one record
                       or on all that a filter matches (preview, confirmation, results)
    <noun>_views       a `Noun`: how records are found, their columns, and their actions
    watch, journal     records followed until they end; steps of the journal
    logs, artifacts    what jobs have written and stored, of one job or of all jobs of a run

    options            arguments, options and commands that several nouns share
    project            `interlock.toml` (`project_ci`: its sections for webhooks, secrets and reports)
    connection         a store or a server, for the length of one command
    pager, hyperlinks  long tables in a pager; ids that link to the dashboard
    output, tables, live   lines and JSON; tables on a terminal; screens that stay up to date
    errors             errors for people and for programs

The modules of commands import the rest when a command runs, so that `--help` is quick. Only `tables`,
`live`, `workload_screen` and `demo` import rich.
"""
