"""Many new jobs at once: those that differ in nothing but their input are decided about once. Pure.

What becomes of a new job depends on its spec, the time and the settings, but never on its input, which is
only carried along. So of jobs that are alike but for it, one is decided about, and the others become the
same, each with its own name and its own input.
"""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec.structs import replace

from interlock.store.records import Change
from interlock.systems.orchestrator.body import JobBody, encode_body
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.submitting import new_job
from interlock.wire.jobs import JobSpec

_NO_INPUT = msgspec.Raw(b"null")


class Alike:
    """Makes jobs of specs; one that is like the last one, but for its input, becomes what that became."""

    __slots__ = ("_actor", "_body", "_change", "_like", "_settings")

    def __init__(self, settings: OrchestratorSettings, actor: str) -> None:
        self._settings = settings
        self._actor = actor
        self._like: tuple[JobSpec, datetime, str] | None = None
        self._body: JobBody
        self._change: Change

    def change(self, spec: JobSpec, job_id: str, now: datetime, mark: str) -> Change:
        """A new job."""
        like = replace(spec, input=_NO_INPUT), now, mark
        if like != self._like:
            draft = new_job(like[0], job_id, now, self._settings)
            self._change = draft.change(mark=mark, actor=self._actor)
            self._body, self._like = draft.body, like
        return replace(self._change, id=job_id, body=encode_body(replace(self._body, input=spec.input)))
