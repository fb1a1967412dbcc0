"""The agent: one machine of a fleet, which starts a workload on request and reliably stops it.

The path of a workload, in reading order:

1. `server` authenticates the controller (addresses, TLS, tokens, users) and serves its gRPC calls.
2. `state` holds the one workload: it asks the table of `lifecycles.workload` for the effect of each event,
and
   carries it out. Nothing else here decides. Its outbox merges the messages that the controller has not read.
3. `validation` checks a request before READY; `port` defines kinds of workloads, and lists them.
4. `execution` watches the workload while a process of it may live, and ends all its processes.
5. `workload_process` is that process: it loads the workload, waits for the start, drives it and counts
   (`load`); `protocol` are the messages between it and the agent. `plugins` are the built-in kinds.

`messages` are those between a controller and the agent, under public names; `settings` are those of an agent.
"""

import os

# This process forks only to execute another program. gRPC would restart its threads in the child, whose files
# are closed.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
