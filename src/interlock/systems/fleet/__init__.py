"""The fleet: one workload on many agents, started at one instant, reported as one, reliably stopped.

Reading order:

    settings                  the timers of the records of workloads
    clocks                    the offsets of agents' clocks, and the common start
    histograms, results       the measurements of agents, merged, never averaged
    outcome, report           progress, result and its files
    spec, workload_file       the spec of a workload
    workloads                 each agent's workload as a record in the store
    agent_client, member      the connection to one agent, and its state
    driver                    the controller of all agents

The modules before `agent_client` neither wait nor read a clock.
"""

import os

# Forks only run other programs. gRPC would start its threads in the child, whose files are closed.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
