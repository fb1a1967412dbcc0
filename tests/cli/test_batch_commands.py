"""`interlock batch …`: progress, waiting and cancelling."""

from __future__ import annotations

import asyncio

from tests.cli.shop import RunCli, Shop

from interlock import Interlock, JobSpec


def submitted(shop: Shop, number: int = 2) -> str:
    async def submit() -> str:
        async with Interlock(shop.url) as il:
            specs = [JobSpec(task="shop_tasks.add", input={"x": n}) for n in range(number)]
            callback = JobSpec(task="shop_tasks.add")
            batch = await il.batches.submit(specs, description="sums", callback=callback)
            return batch.id

    return asyncio.run(submit())


def test_a_batch_is_listed_shown_and_canceled(cli: RunCli, shop: Shop) -> None:
    batch_id = submitted(shop)
    assert batch_id in cli("batch", "list").stdout
    shown = cli("batch", "show", batch_id, "--jobs").stdout
    assert f"The batch {batch_id} (sums) is RUNNING." in shown
    assert "0 of 2 jobs have ended" in shown
    assert shown.count("j_") == 2
    waited = cli("batch", "wait", batch_id, "--timeout", "1s")
    assert waited.returncode != 0
    assert f"interlock batch show {batch_id}" in waited.stderr
    assert cli("batch", "cancel", batch_id, "--reason", "enough").returncode == 0
    waited = cli("batch", "wait", batch_id)
    assert (waited.returncode, "2 canceled" in waited.stdout) == (1, True)
    unknown = cli("batch", "show", "b_000000000000")
    assert "There is no batch b_000000000000." in unknown.stderr
