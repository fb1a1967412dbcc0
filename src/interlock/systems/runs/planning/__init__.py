"""From what somebody asks to be evaluated to a plan: a graph of jobs, each with why it is there.

port.py         what every planner offers
workflow.py     workflow files, `.interlock/*.yml`
flow.py         Python functions decorated with `@flow`
repository.py   workflow files as they are in a git repository at some commit
"""
