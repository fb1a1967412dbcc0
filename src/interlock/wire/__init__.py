"""What crosses a process: plain structs, the same whether they travel through memory or over HTTP.

jobs      what somebody submits, and how a job is shown
filters   which jobs are meant: one grammar for the command line, the API and the dashboard
metrics   what is counted, and under which names
runner    what a runner and the orchestrator say to each other
"""
