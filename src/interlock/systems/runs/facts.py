"""The facts beside a step of a run, worked out from its record when a coupling asks for them."""

from __future__ import annotations

from interlock.lifecycles.run import Run
from interlock.systems.runs.body import RunBody


class RunFacts:
    """What couplings may ask about a run, as seen from one of its jobs."""

    __slots__ = ("_body", "_data", "_required")

    def __init__(self, data: Run, body: RunBody, required: bool = False) -> None:
        self._data = data
        self._body = body
        self._required = required

    @property
    def stopping(self) -> bool:
        """Somebody has asked it to stop."""
        return self._data.cancel_requested

    @property
    def anything_active(self) -> bool:
        """Some job of it has not ended."""
        return self._body.left > 0

    @property
    def required(self) -> bool:
        """The run cannot succeed without the job."""
        return self._required

    @property
    def every_required_job_succeeded(self) -> bool:
        """No required job is left to succeed."""
        return self._body.required_left == 0

    @property
    def fail_fast(self) -> bool:
        """What cannot change the outcome any more is stopped."""
        return self._body.fail_fast

    @property
    def tries_left(self) -> bool:
        """A run is not tried again; its jobs are."""
        return False

    @property
    def fails_parent(self) -> bool:
        """Nor has it a parent."""
        return False

    @property
    def stops_siblings(self) -> bool:
        """Nor siblings."""
        return False

    @property
    def losses_left(self) -> bool:
        """Nor is it lost."""
        return False

    @property
    def every_shard_succeeded(self) -> bool:
        """Nor has it shards."""
        return False
