"""The agent: one machine of a fleet, which starts a workload on request and stops it for certain.

The way of a workload, in reading order:

1. `server` lets the controller in (addresses, TLS, tokens, users) and serves its gRPC calls.
2. `state` holds the one workload: it asks the table of `lifecycles.workload` what each event does, and
   carries that out. Nothing else here decides. Its outbox merges what the controller has not read yet.
3. `validation` checks a request before READY; `port` is what a kind of workload is, and which there are.
4. `execution` watches the workload while something of it may live: its process with everything that it
   starts, and how all of that is ended.
5. `workload_process` is that process: it loads the workload, waits for the instant, drives it and counts
   (`load`); `protocol` is what it and the agent send each other. `plugins` are the built-in kinds.
"""

import os

# We fork only to run another program. gRPC would start its threads in the child, whose files are gone.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
