"""The facts beside a step of a job, worked out from its record when a coupling asks for them."""

from __future__ import annotations

from interlock.lifecycles import attempt, job
from interlock.machine.cascade import Root
from interlock.systems.orchestrator.body import AttemptBody, JobBody
from interlock.systems.orchestrator.failures import FailureClass, rule_for
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.wire.jobs import RetryRule

STOPPED_WITH_OTHERS = ("parent", "sibling")
"""Reasons for which a child is stopped that say nothing about the child itself."""


class JobFacts:
    """What couplings may ask about a job, as seen from one of its attempts."""

    __slots__ = ("_body", "_job", "_settings", "one")

    def __init__(
        self, root: Root, body: JobBody, settings: OrchestratorSettings, one: AttemptBody | None
    ) -> None:
        self._job = root
        self._body = body
        self._settings = settings
        self.one = one

    @property
    def tries_left(self) -> bool:
        """Its failure may be retried, and a try is left."""
        return self.retries_used < self.rule.retries

    @property
    def losses_left(self) -> bool:
        """It may be lost once more; the loss that asks is counted already."""
        allowed = self._body.losses_allowed
        return self._body.losses <= (self._settings.losses if allowed is None else allowed)

    @property
    def stopping(self) -> bool:
        """Somebody has asked it to stop, or it has ended."""
        return self._job.data.stop_reason is not None or self._job.state in job.ENDED

    @property
    def every_shard_succeeded(self) -> bool:
        """Each shard has an attempt that succeeded."""
        body = self._body
        if body.data.worker_count == 1:
            return self.one is not None and self.one.state is attempt.SUCCEEDED
        done = {one.shard for one in body.attempts if one.state is attempt.SUCCEEDED}
        return len(done) == body.data.worker_count

    @property
    def anything_active(self) -> bool:
        """Some attempt has not ended."""
        return self._body.active > 0

    @property
    def required(self) -> bool:
        """Its run cannot succeed without it; a job that is in no run holds nobody up."""
        return self._body.run is not None and self._body.run.required

    @property
    def fails_parent(self) -> bool:
        """Its submitter said so, and it was not stopped because of the others."""
        return self._policy == "fail_parent"

    @property
    def stops_siblings(self) -> bool:
        """Its submitter said so; a parent that fails needs none of its children."""
        return self._policy in ("fail_parent", "cancel_siblings")

    @property
    def _policy(self) -> str:
        part = self._body.tree
        if part is None or self._job.data.stop_reason in STOPPED_WITH_OTHERS:
            return ""
        return part.if_fails

    @property
    def every_required_job_succeeded(self) -> bool:
        """The run knows that, not the job."""
        return False

    @property
    def fail_fast(self) -> bool:
        """The run decides that, not the job."""
        return False

    @property
    def rule(self) -> RetryRule:
        """How the failure of this attempt is tried again."""
        body = self._body
        return rule_for(self._class, retries=body.retries, own=body.retry, defaults=self._settings.retries)

    @property
    def retries_used(self) -> int:
        """How many earlier failures of the same class at the same shard were tried again."""
        one = self.one
        if one is None:
            return 0
        folded = self._body.folded
        long_ago = folded.failures.get(f"{one.shard}.{self._class}", 0) if folded else 0
        return long_ago + sum(
            earlier.shard == one.shard
            and earlier.index < one.index
            and earlier.failure is not None
            and earlier.failure.failure_class is self._class
            for earlier in self._body.attempts
        )

    @property
    def _class(self) -> FailureClass:
        one = self.one
        return one.failure.failure_class if one is not None and one.failure is not None else FailureClass.USER
