"""The command line. `main` is the program; each noun has a module of its own in `nouns`.

    nouns/             jobs, runs, simulations, schedules, workers, queues, records, workloads, tokens, …: the
                       commands of a noun with their columns, filters and actions. What exceeds 600 lines is
                       `<noun>_views` (a `Noun`: search, columns, actions) and `<noun>_<verb>`
    programs           the declarations of agent, demo, dev, doctor and top, each in a module of its name
    server, runner_check   programs that declare themselves (`supervisor` is in `nouns/workers`)
    verify             a command of another distribution, interlock-verification

    verbs              the verbs that all nouns share: list, show, history, explain, and actions on one record
                       or on all that a filter matches (preview, confirmation, results)
    watch, journal     records followed until they end; steps of the journal
    logs, artifacts    what jobs have written and stored, of one job or of all jobs of a run

    help_pages         help texts as typer prints them, stored in `help.txt`
    options            arguments, options and commands that several nouns share
    completion         values that are offered after TAB (`task_files`: tasks in sources)
    project            `interlock.toml` (`project_ci`: its sections for webhooks, secrets and reports)
    connection         a store or a server, for the length of one command
    pager, hyperlinks  long tables in a pager; ids that link to the dashboard
    output, tables, live   lines and JSON; tables on a terminal; screens that stay up to date
    errors             errors for people and for programs
    streams            standard output whose encoding lacks characters, or whose reader goes away

The modules of commands import the rest when a command runs, so that `--help` is quick. Only `tables`,
`live` and `demo` import rich.
"""
