"""The command line. Each group of commands declares its words in one file.

    main      the program: what is asked, and every error that can come of it
    machine   `interlock machine …`: the words; the work is in the files below
    loading   from what somebody typed to a machine or a blueprint
    judging   what `check` finds
    sheets    what is shown of a machine, as rows
    render    how rows are shown: tables on a terminal, tabs in a pipe
    tables    the tables; only they need rich
    writing   files that are whole or not there
    errors    how errors are told to a person or a program

What only some commands need is imported where they run, so that `--help` answers at once.
"""
