"""Runs as somebody asks for them: by id, and by a filter.

Runs are about all queues, so a token that is confined to some sees none of them.
"""

from __future__ import annotations

from interlock.errors import UnknownRun
from interlock.server.api.visibility import is_shaped
from interlock.server.routes import Call
from interlock.systems.runs.search import found_runs
from interlock.wire.run_filters import WantedRuns
from interlock.wire.runs import RunView


def run_id_in(call: Call) -> str:
    """The id in the address, if it can be one at all; nothing else reaches the store."""
    run_id = call.path["run_id"]
    if not is_shaped(run_id):
        raise UnknownRun(
            f"There is no run {run_id[:64]}.",
            todo="Look for it with GET /api/runs; runs are pruned a while after they were reported.",
            facts={"run_id": run_id[:64]},
        )
    return run_id


async def page_of_runs(
    call: Call, wanted: WantedRuns, *, limit: int, cursor: str = ""
) -> tuple[list[RunView], str]:
    """As many runs as were asked for, and the cursor of the next ones."""
    now = await call.parts.runtime.engine.clock.now()
    found = await found_runs(call.parts.runtime.runs, wanted, now, limit=limit, cursor=cursor, looks=1)
    return found.views, found.cursor
