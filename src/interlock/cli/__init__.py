"""The command line. Each group of commands declares its words in one file.

    main      the program: what is asked, and every error that can come of it
    options   words that several groups share
    project   `interlock.toml`: where the store is and what it is run with
    errors    how errors are told to a person or a program
    printing  how rows are shown: tables on a terminal (tables, live), tabs in a pipe

    submitting  `interlock submit`: the words; task_names and specs make jobs of them, submissions stores them
    jobs        `interlock job …`: looking shows, bulk stops and does again; finding knows which are meant
    many        one thing done with every record that somebody means: previewed, asked, and told one by one
    watching    `interlock job watch|wait|logs`: following reads the news, watchers and job_logs tell it
    queues, workers   `interlock queue …`, `interlock worker …`
    machine     `interlock machine …`: loading, judging, sheets, render
    db          `interlock db …`: looking_after

What only some commands need is imported where they run, so that `--help` answers at once.
"""
