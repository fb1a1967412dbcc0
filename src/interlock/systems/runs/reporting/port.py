"""The port of reporters: whoever tells the world how a run stands.

A reporter may be asked twice for the same outcome, because whoever asked first may have crashed: what
it sends is told apart by the id of the run and its state. If it raises, it is asked again later, and
the run waits in its outcome; a reporter that is down never holds anything else.
"""

from __future__ import annotations

from typing import Protocol

from interlock.wire.runs import RunView


class Reporter(Protocol):
    """Tells somebody how runs stand."""

    async def report(self, run: RunView) -> None:
        """The outcome is decided; it is told until it has been heard, and `REPORTED` after that."""
        ...

    async def mention(self, run: RunView) -> None:
        """The run is on its way (QUEUED, RUNNING): best effort, and never insisted on.

        It may come late, so a reporter that has told the outcome of a run says nothing more of it.
        """
        ...
