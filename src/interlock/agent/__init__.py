"""The agent: one machine of a fleet, which starts a workload when told and stops it for certain.

The way of a workload, in reading order:

1. `service` hears the controller (gRPC) and speaks to it; `server` lets it in: addresses, TLS, tokens.
2. `desk` holds the one workload: it asks the table of `lifecycles.workload` what each event does, and
   carries that out. Nothing else here decides.
3. `validation` looks at a request before READY; `kinds` knows which workloads there are.
4. `execution` watches the workload while something of it may live; `family` is its process with
   everything that it starts, and how all of that is ended.
5. `child` is that process: it loads the workload, waits for the instant, drives it (`load`, `lanes`) and
   counts (`counters`); `plugins` are the kinds that come with Interlock, `port` is what one of your own is.
6. `outbox` holds what the controller has not read yet, merged into one message; `messages` and
   `problems` are how that and a refusal look on the wire.
"""

import os

# We fork only to run another program. gRPC would start its threads in the child, whose files are gone.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
