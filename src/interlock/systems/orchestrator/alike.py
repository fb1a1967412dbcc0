"""Many new jobs at once: those that differ in nothing but their input are decided about once. Pure.

What becomes of a new job depends on its spec, the time and the settings, but never on its input, which is
only carried along. So of jobs that are alike but for it, one is looked at and decided about, and the others
become the same, each with its own name and its own input.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from interlock.store.records import Change
from interlock.systems.orchestrator.body import JobBody, encode_body
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.stencils import INPUT, Stencil, stencil_of
from interlock.systems.orchestrator.submitting import check_input, check_spec, new_job
from interlock.wire.jobs import JobSpec

_NO_INPUT = msgspec.Raw(b"null")


def checked(specs: Sequence[JobSpec], settings: OrchestratorSettings) -> list[JobSpec]:
    """The specs without their inputs, those that are alike as one object; raises for the first bad one."""
    likes: list[JobSpec] = []
    last: JobSpec | None = None
    for spec in specs:
        check_input(spec, settings)
        like = replace(spec, input=_NO_INPUT)
        if like != last:
            check_spec(spec, settings)
            last = like
        likes.append(last)
    return likes


class Alike:
    """Makes jobs of specs at one moment; one that is like the last one becomes what that became."""

    __slots__ = ("_actor", "_body", "_change", "_like", "_mark", "_now", "_settings", "_stencil")

    def __init__(self, settings: OrchestratorSettings, actor: str, now: datetime, mark: str) -> None:
        self._settings = settings
        self._actor = actor
        self._now, self._mark = now, mark
        self._like: JobSpec | None = None
        self._body: JobBody
        self._change: Change
        self._stencil: Stencil | None = None

    def change(self, like: JobSpec, given: msgspec.Raw, job_id: str) -> Change:
        """A new job, of a spec without its input, and its input."""
        if like is not self._like:
            draft = new_job(replace(like, input=INPUT), job_id, self._now, self._settings)
            self._change = draft.change(mark=self._mark, actor=self._actor)
            self._body, self._like = draft.body, like
            self._stencil = stencil_of(self._change.body, INPUT)
        if self._stencil is None:  # its own data look like the mark of the hole
            return replace(self._change, id=job_id, body=encode_body(replace(self._body, input=given)))
        return replace(self._change, id=job_id, body=self._stencil.filled(given))
