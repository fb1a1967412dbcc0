"""A workload that is tried without an agent."""

from __future__ import annotations

import asyncio

import msgspec

from interlock.agent.port import Load, Workload
from interlock.testing.workloads import try_workload


class SlowSpec(msgspec.Struct, frozen=True):
    pass


class Slow(Workload[SlowSpec]):
    """An operation that takes longer than a trial without a number of operations lasts."""

    kind = "slow"
    spec_type = SlowSpec

    async def run(self, load: Load) -> None:
        await load.drive(self.wait)

    async def wait(self) -> int:
        loop = asyncio.get_running_loop()
        waited: asyncio.Future[None] = loop.create_future()
        loop.call_later(0.6, waited.set_result, None)
        await waited
        return 1


async def test_a_trial_of_a_number_of_operations_lasts_until_they_are_done() -> None:
    """On a machine that stood still it ended after a second, with fewer."""
    tried = await try_workload(Slow, {}, max_operations=3)  # the third begins after a second
    assert (tried.operations, tried.errors, tried.size) == (3, 0, 3)
