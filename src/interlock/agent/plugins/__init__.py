"""The built-in kinds of workloads, one module each."""
