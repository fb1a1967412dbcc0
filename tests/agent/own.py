"""A kind of workload of one's own, under the name of one that comes with Interlock."""

from __future__ import annotations

import msgspec

from interlock.agent.port import Load, Workload


class NapSpec(msgspec.Struct, frozen=True):
    """Nothing to say about a nap."""


class Nap(Workload[NapSpec]):
    """Counts one operation, and is over."""

    kind = "sleep"
    spec_type = NapSpec

    async def run(self, load: Load) -> None:
        load.record(1_000, size=5)
