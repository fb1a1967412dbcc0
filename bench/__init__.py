"""Measurements that `make bench` repeats: what Interlock costs, beside what others cost, in one run.

Reading order:

    rounds      how anything here is timed: in turns, one process, the median of the rounds
    report      the tables on the screen, and the JSON of `--json`
    figure_page the figures that are kept in figures/, and the page FIGURES.md made of them
    table       the twelve states and their edges, written once for all contenders
    machines/   that table in each library, at its best documented settings
    kernel      the suite that compares them, and the aims it is held to
    anatomy     the suite that takes our own `decide` apart
    stores/     the suites of the stores and the engine, beside bare loops with the same drivers
    jobs/       the suites of the job queue, beside other projects', with real worker processes

A suite is a module with a `run(pace)` that returns a `Section`; a new one is added to `SUITES` in
`__main__`, and gets its paragraph in README.md.
"""
