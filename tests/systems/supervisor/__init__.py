"""The orchestrator of jobs, held against the requirements."""
