"""The kinds of workloads that come with Interlock, one file each."""
