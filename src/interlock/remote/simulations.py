"""Everything that people do with simulations, over HTTP; the same as `SimulationManager` offers."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from interlock.errors import UnknownSimulation
from interlock.remote.http_client import ApiClient, HistoryPage
from interlock.store.records import Entry
from interlock.wire.simulations import SimulationFilter, SimulationMetrics, SimulationSpec, SimulationView

MAX_PAGE = 1_000
ALL = SimulationFilter()


class SimulationPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some simulations."""

    simulations: tuple[SimulationView, ...]
    cursor: str = ""


class PauseAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What asking for a pause is answered."""

    simulation: SimulationView


class StaleRuns(msgspec.Struct, frozen=True, kw_only=True):
    """Which simulations were not heard of."""

    run_ids: tuple[str, ...]


class HttpSimulations:
    """The simulations behind a server. Who did it the server knows by the token."""

    def __init__(self, asker: ApiClient, *, names: Callable[[], str]) -> None:
        self._asker = asker
        self._names = names

    async def create_run(
        self,
        spec: SimulationSpec,
        *,
        actor: str = "",  # noqa: ARG002 - the server knows who it is
        request_id: str | None = None,
    ) -> SimulationView:
        """A new simulation, or the one that an earlier request with this id has made."""
        body = {**msgspec.structs.asdict(spec), "request_id": self._named(request_id)}
        return await self._asker.post("/api/simulations", SimulationView, msgspec.json.encode(body))

    async def get(self, run_id: str) -> SimulationView:
        """The simulation as it stands."""
        return await self._asker.get(_path(run_id), SimulationView)

    async def metrics(self, run_id: str) -> SimulationMetrics:
        """Return its metrics over the steps."""
        return await self._asker.get(_path(run_id, "metrics"), SimulationMetrics)

    async def list_runs(
        self, wanted: SimulationFilter = ALL, *, cursor: str = "", limit: int = 100
    ) -> tuple[list[SimulationView], str]:
        """A page of simulations, newest first, and the cursor of the next one."""
        page = await self._asker.get(
            "/api/simulations",
            SimulationPage,
            status=",".join(wanted.statuses),
            priority=wanted.priority,
            text=wanted.text,
            cursor=cursor,
            limit=min(limit, MAX_PAGE),
        )
        return list(page.simulations), page.cursor

    async def pause(
        self,
        run_id: str,
        *,
        reason: str = "",
        actor: str = "",  # noqa: ARG002 - the server knows who it is
        request_id: str | None = None,
    ) -> SimulationView:
        """Ask it to stop after the present step."""
        answer = await self._asker.post(_path(run_id, "pause"), PauseAnswer, self._body(reason, request_id))
        return answer.simulation

    async def resume(
        self,
        run_id: str,
        *,
        reason: str = "",
        actor: str = "",  # noqa: ARG002 - the server knows who it is
        request_id: str | None = None,
        queue: str = "",
    ) -> SimulationView:
        """Give it to a worker of its queue, or of another one."""
        more = {"queue": queue} if queue else {}
        body = self._body(reason, request_id, **more)
        return await self._asker.post(_path(run_id, "resume"), SimulationView, body)

    async def cancel(
        self,
        run_id: str,
        *,
        reason: str = "",
        actor: str = "",  # noqa: ARG002 - the server knows who it is
        request_id: str | None = None,
    ) -> SimulationView:
        """Stop it for good."""
        return await self._asker.post(_path(run_id, "cancel"), SimulationView, self._body(reason, request_id))

    async def transition(
        self,
        run_id: str,
        new_status: str,
        *,
        expected_version: int | None = None,
        worker_id: str | None = None,
        step: int | None = None,
        error: str = "",
        actor: str = "",  # noqa: ARG002 - the server knows who it is
        reason: str = "",
        request_id: str | None = None,
    ) -> SimulationView:
        """Move it by hand, by the table."""
        body = self._body(
            reason,
            request_id,
            status=new_status,
            expected_version=expected_version,
            worker_id=worker_id,
            step=step,
            error=error,
        )
        return await self._asker.post(_path(run_id, "transition"), SimulationView, body)

    async def heartbeat(self, run_id: str, worker_id: str, step: int) -> SimulationView:
        """Note a sign of life of one that is driven by hand."""
        body = msgspec.json.encode({"worker_id": worker_id, "step": step})
        return await self._asker.post(_path(run_id, "heartbeat"), SimulationView, body)

    async def check_stale_runs(self, timeout_s: float | None = None) -> list[str]:
        """Return the ids of those that run and were not heard of for so long."""
        asked = {} if timeout_s is None else {"timeout_s": timeout_s}
        return list((await self._asker.get("/api/stale-simulations", StaleRuns, **asked)).run_ids)

    async def history(self, run_id: str) -> list[Entry]:
        """Everything that has happened to it, oldest first."""
        page = await self._asker.get(_path(run_id, "history"), HistoryPage)
        return [each.entry() for each in page.entries]

    def _body(self, reason: str, request_id: str | None, **more: object) -> bytes:
        return msgspec.json.encode({"reason": reason, "request_id": self._named(request_id), **more})

    def _named(self, request_id: str | None) -> str:
        return request_id if request_id is not None else self._names()


def _path(run_id: str, what: str = "") -> str:
    """Where a simulation is; a name that cannot be one must not lead elsewhere."""
    if not run_id or not all(character.isalnum() or character in "_-" for character in run_id):
        raise UnknownSimulation(
            f"There is no simulation {run_id[:64]}.",
            todo="Look for it with `interlock simulation list`.",
            facts={"run_id": run_id[:64]},
        )
    return f"/api/simulations/{run_id}/{what}".rstrip("/")
