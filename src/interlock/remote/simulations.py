"""Simulations over HTTP, with the interface of `SimulationManager`.

The server knows the actor by the token, so an `actor` that is named here is not passed on.
"""

from __future__ import annotations

import msgspec

from interlock.api import simulations as api
from interlock.api.messages import MAX_PAGE
from interlock.remote.history import history_of
from interlock.remote.http_client import ApiClient
from interlock.store.records import Entry
from interlock.wire.simulations import SimulationFilter, SimulationMetrics, SimulationSpec, SimulationView

ALL = SimulationFilter()


class HttpSimulations:
    """The simulations behind a server."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def create_run(
        self, spec: SimulationSpec, *, actor: str = "", request_id: str | None = None
    ) -> SimulationView:
        """Submit a simulation; a repeated request returns the earlier one."""
        sent = api.OneSimulation(**msgspec.structs.asdict(spec), request_id=request_id)
        return await self._client.call(api.START_SIMULATION, sent)

    async def get(self, run_id: str) -> SimulationView:
        """Return a simulation."""
        return await self._client.call(api.GET_SIMULATION, run_id=run_id)

    async def metrics(self, run_id: str) -> SimulationMetrics:
        """Return the metrics of a simulation over its steps."""
        return await self._client.call(api.GET_SIMULATION_METRICS, run_id=run_id)

    async def list_runs(
        self, wanted: SimulationFilter = ALL, *, cursor: str = "", limit: int = 100
    ) -> tuple[list[SimulationView], str]:
        """Return a page of simulations, newest first, and the next cursor."""
        query = api.SimulationsQuery(
            status=",".join(wanted.statuses),
            priority=wanted.priority,
            text=wanted.text,
            cursor=cursor,
            limit=min(limit, MAX_PAGE),
        )
        page = await self._client.call(api.LIST_SIMULATIONS, query)
        return list(page.simulations), page.cursor

    async def pause(
        self, run_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> SimulationView:
        """Request a pause after the present step."""
        sent = api.SimulationAction(reason=reason, request_id=request_id)
        return (await self._client.call(api.PAUSE_SIMULATION, sent, run_id=run_id)).simulation

    async def resume(
        self,
        run_id: str,
        *,
        reason: str = "",
        actor: str = "",
        request_id: str | None = None,
        queue: str = "",
    ) -> SimulationView:
        """Resume a simulation on a worker of its queue, or of another one."""
        sent = api.ResumeSimulation(reason=reason, request_id=request_id, queue=queue)
        return await self._client.call(api.RESUME_SIMULATION, sent, run_id=run_id)

    async def cancel(
        self, run_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> SimulationView:
        """Cancel a simulation."""
        sent = api.SimulationAction(reason=reason, request_id=request_id)
        return await self._client.call(api.CANCEL_SIMULATION, sent, run_id=run_id)

    async def transition(
        self,
        run_id: str,
        new_status: str,
        *,
        expected_version: int | None = None,
        worker_id: str | None = None,
        step: int | None = None,
        error: str = "",
        actor: str = "",
        reason: str = "",
        request_id: str | None = None,
    ) -> SimulationView:
        """Move a simulation that is driven by hand to another status."""
        sent = api.MoveSimulation(
            status=new_status,
            expected_version=expected_version,
            worker_id=worker_id,
            step=step,
            error=error,
            reason=reason,
            request_id=request_id,
        )
        return await self._client.call(api.TRANSITION_SIMULATION, sent, run_id=run_id)

    async def heartbeat(self, run_id: str, worker_id: str, step: int) -> SimulationView:
        """Record a heartbeat of a simulation that is driven by hand."""
        sent = api.SimulationBeat(worker_id=worker_id, step=step)
        return await self._client.call(api.HEARTBEAT_SIMULATION, sent, run_id=run_id)

    async def check_stale_runs(self, timeout_s: float | None = None) -> list[str]:
        """Return the running simulations without a heartbeat for `timeout_s`."""
        query = api.StaleQuery(timeout_s=timeout_s)
        return list((await self._client.call(api.LIST_STALE_SIMULATIONS, query)).run_ids)

    async def history(self, run_id: str) -> list[Entry]:
        """Return the journal of a simulation, oldest first."""
        return await history_of(self._client, api.GET_SIMULATION_HISTORY, run_id=run_id)
