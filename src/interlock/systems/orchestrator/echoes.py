"""Reports that are alike, about jobs that are alike: one is judged, and the others are heard the same. Pure.

Jobs that were given out together as twins (see `twins`) are the same but for name, input and secret, and most
of them end the same way: they succeed. Whatever was returned is only carried along. So it is cut out as well,
one report about one job with holes in it is judged, and the judgement holds for all of them.
"""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec.structs import replace

from interlock.engine.applying import Decision
from interlock.lifecycles import job
from interlock.store.records import Change, Commit, Record
from interlock.systems.orchestrator.hearing import digest_of_report, hear, is_kept_inline
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.stencils import (
    DIGEST,
    INPUT,
    JOB_ID,
    RESULT,
    Pattern,
    Stencil,
    is_marked,
    standing_like,
    stencil_of,
)
from interlock.systems.orchestrator.tokens import Token
from interlock.wire.runner import Answer, Complete, Heard, Message, Succeeded


class _Echo(msgspec.Struct, frozen=True, gc=False):
    """How a report is heard that was heard before, about another job."""

    runner_id: str
    cost: float | None
    change: Change
    stencil: Stencil
    """With holes for input, digest, result, and the digest of the report."""
    answer: Answer
    not_after: datetime | None


class Echoes:
    """What was heard in one batch, by the stencils of the jobs that it was about."""

    __slots__ = ("_batch", "_heard", "_settings")

    def __init__(self, settings: OrchestratorSettings) -> None:
        self._settings = settings
        self._batch: tuple[datetime, str] | None = None
        self._heard: dict[Stencil, _Echo | None] = {}

    def hear(
        self, record: Record, pattern: Pattern, token: Token, message: Message, now: datetime, mark: str
    ) -> Decision[Answer] | None:
        """What a message does to a job; None for who has to be heard like the first of its kind.

        The token has opened the lease that it is about.
        """
        if type(message) is not Complete or message.log or message.log_offset is not None:
            return None
        outcome = message.outcome
        if type(outcome) is not Succeeded or not is_kept_inline(outcome.result, self._settings):
            return None
        if self._batch != (now, mark):
            self._batch = now, mark
            self._heard.clear()
        echo = self._heard.get(pattern.stencil)
        if echo is None or echo.runner_id != message.runner_id or echo.cost != message.cost:
            if pattern.stencil in self._heard and echo is None:
                return None
            echo = _echo_of(record, pattern, token, message, now, mark, self._settings)
            self._heard[pattern.stencil] = echo
        if echo is None:
            return None
        body = echo.stencil.filled(
            pattern.input, token.digest.encode(), outcome.result, digest_of_report(message).encode()
        )
        change = replace(echo.change, id=record.id, body=body, expected_at=record.updated_at)
        return Decision(echo.answer, Commit(changes=(change,), not_after=echo.not_after))


def _echo_of(
    record: Record,
    pattern: Pattern,
    token: Token,
    message: Complete,
    now: datetime,
    mark: str,
    settings: OrchestratorSettings,
) -> _Echo | None:
    """How this is heard, whichever job it is about and whatever it returned; None where that matters."""
    nobody = standing_like(record, pattern.stencil.filled(INPUT, DIGEST.encode()), now)
    nobodys = Token(JOB_ID, token.shard, token.index, "", DIGEST)
    said = Complete(
        token=str(nobodys), runner_id=message.runner_id, outcome=Succeeded(RESULT), cost=message.cost
    )
    decision = hear(nobody, nobodys, said, now, mark, settings)
    commit = decision.commit
    if (
        commit is None
        or len(commit.changes) != 1
        or commit.refusals
        or not isinstance(decision.answer, Heard)
    ):
        return None
    (change,) = commit.changes
    if change.state not in job.ENDED:  # what is yet to come may depend on its name, like the pause before it
        return None
    stencil = stencil_of(change.body, INPUT, DIGEST.encode(), RESULT, digest_of_report(said).encode())
    rest = replace(change, id="", body=b"")
    if stencil is None or is_marked((rest, decision.answer)):
        return None
    return _Echo(message.runner_id, message.cost, rest, stencil, decision.answer, commit.not_after)
