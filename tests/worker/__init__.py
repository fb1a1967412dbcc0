"""The worker process and its tasks."""
