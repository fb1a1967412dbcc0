"""The contenders, each in a virtual environment of its own; see `adapter` for what is asked of them.

`handler`, `workers` and `adapter` are for all of them and need nothing but Python. The others are named
as the project that they import, and hold the best settings that it documents, as far as they are not
its defaults. They are run as `python -m bench.jobs.peers NAME` by the interpreter of that environment.
"""
