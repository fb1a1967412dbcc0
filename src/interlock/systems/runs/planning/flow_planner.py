"""The planner of flows: calls the function, where its module is loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from interlock.errors import InterlockError, PlanRefused
from interlock.suggestions import nearest
from interlock.systems.runs.planning.flow import FLOWS, FlowFunction
from interlock.systems.runs.planning.port import PlanRequest
from interlock.wire.runs import Plan


class FlowPlanner:
    """Makes plans with flows that are loaded here. It imports nothing: a request names no code to run."""

    def __init__(self, flows: Mapping[str, FlowFunction] = FLOWS) -> None:
        self._flows = flows

    async def plan(self, request: PlanRequest) -> Plan:
        """The plan; the function runs beside the loop, and whatever it raises is told."""
        spec = request.spec
        found = self._flows.get(spec.definition)
        if found is None:
            known = tuple(sorted(self._flows))
            guess = nearest(spec.definition, known)
            raise PlanRefused(
                f"There is no flow {spec.definition[:200]!r} here."
                + (f" Did you mean {guess}?" if guess else ""),
                allowed=known,
                todo="Start the server with its module, or submit the flow from a program that has it.",
                facts={"flow": spec.definition[:200], "known": list(known)},
            )
        try:
            return await asyncio.to_thread(found.plan, spec.source, **spec.inputs)
        except InterlockError:
            raise
        except Exception as error:
            raise PlanRefused(
                f"The flow {found.address} raised {type(error).__name__}: {error}",
                todo="Mend the flow.",
                facts={"flow": found.address, "exception": type(error).__name__},
            ) from error
