"""The reporter that is always there: a line in the log."""

from __future__ import annotations

import logging

from interlock.wire.runs import RunView

log = logging.getLogger("interlock.runs")


class LogReporter:
    """Writes how runs stand to the log."""

    async def report(self, run: RunView) -> None:
        """One line with the outcome."""
        why = f" ({run.reason})" if run.reason else ""
        log.info("run %s of %s: %s%s", run.id, run.workflow or "-", run.outcome, why)

    async def mention(self, run: RunView) -> None:
        """Nothing: the journal has it."""
