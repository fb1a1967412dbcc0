"""`sleep`: operations that only wait, for trying out a fleet and its network."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import msgspec

from interlock.agent.port import Load, Workload


class SleepSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Duration of each operation."""

    operation_s: float = 0.01


class Sleep(Workload[SleepSpec]):
    """A workload whose operations sleep."""

    kind = "sleep"
    spec_type: ClassVar[type[msgspec.Struct]] = SleepSpec

    @classmethod
    def check(cls, spec: SleepSpec) -> None:
        """Check the duration."""
        if not 0 <= spec.operation_s <= 3_600:
            raise ValueError("operation_s must be between 0 and 3600")

    async def run(self, load: Load) -> None:
        """Sleep repeatedly."""
        await load.drive(self._sleep)

    async def _sleep(self) -> None:
        await asyncio.sleep(self.spec.operation_s)
