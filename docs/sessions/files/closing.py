"""The schedule of a shop."""

from interlock import schedule, task


@schedule(every="15m", name="poll-inbox")
@task
def poll() -> None:
    """Look for new orders."""
