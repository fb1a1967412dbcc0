"""Submitting under an id that follows from what a run is about."""

from __future__ import annotations

import msgspec

from interlock.errors import RequestIdReused
from interlock.systems.runs.body import Happened
from interlock.systems.runs.runs import Runs
from interlock.wire.runs import ForkTerms, RunSpec


class OnceOnly:
    """Submits a run, unless there is one for it."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    async def submit_once(
        self,
        spec: RunSpec,
        *,
        request_id: str,
        actor: str,
        remember_s: float,
        terms: ForkTerms | None = None,
        happened: Happened | None = None,
    ) -> str:
        """The id of the one run that was submitted under the request id, now or earlier.

        Two deliveries about one change may differ in what does not matter (who has sent it, say), and
        the settings may have changed between them: the run that is there is the one.
        """
        runs = self._runs
        try:
            run = await runs.submit(
                spec,
                request_id=request_id,
                actor=actor,
                remember_s=remember_s,
                terms=terms,
                happened=happened,
            )
        except RequestIdReused:
            recorded = await runs.engine.store.recall(request_id)
            if recorded is None:
                raise
            return msgspec.json.decode(recorded.answer.body, type=str)
        return run.id
