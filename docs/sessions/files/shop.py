"""The tasks of a small shop."""

import logging

from interlock import Context, task

log = logging.getLogger(__name__)


@task(queue="mail", retries=2)
def send(address: str) -> str:
    """Send a receipt."""
    print(f"sent to {address}")
    return f"receipt for {address}"


@task
def charge(order: str, amount: int) -> int:
    """Charge a card."""
    if amount > 1_000:
        raise ValueError(f"order {order}: the limit is 1000, not {amount}")
    return amount


@task(timeout_s=600)
def report(ctx: Context, month: str) -> int:
    """Add up a month."""
    for day in range(1, 4):
        ctx.progress(day, 3)
    log.info("added up %s", month)
    return 42
