"""The fleet: one workload on many agents, started at one true instant, seen as one, stopped for certain.

In the order in which to read it:

    clocks.py, starting.py       what an agent's clock says, and the instant at which all begin
    histograms.py, merging.py    what agents have measured, as one: merged, never averaged
    coverage.py                  what it means that some of the agents are missing
    results.py, files.py, report.py, drawing.py      what is left of it
    spec.py, workload_file.py    what is asked for
    deciding.py, workloads.py    each agent's workload as a record in the store
    line.py, driving.py          the conversation with one agent, and with all of them

Up to the conversation nothing here waits for anything or knows a clock of its own.
"""

import os

# We fork only to run another program. gRPC would start its threads in the child, whose files are gone.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
