"""What a controller and its agents say to each other, and the Python made from it by `make proto`."""

import os

# We fork only to run another program. gRPC would start its threads in the child, whose files are gone.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
