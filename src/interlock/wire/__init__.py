"""What crosses a process: plain structs, the same whether they travel through memory or over HTTP.

jobs      what somebody submits, and how a job is shown
runner    what a runner and the orchestrator say to each other
"""
