"""Pure: signs and history, weighed into a class, a confidence and the evidence."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from interlock.systems.orchestrator.failures import FailureClass
from interlock.systems.runs.analysis.history import HistoryBody, outcomes_in_words
from interlock.systems.runs.analysis.signs import SIGNS, Evidence, Sign, evidence_in
from interlock.wire.jobs import FailureView
from interlock.wire.runs import RunJobView

MAX_EVIDENCE = 8
_RECORDED = {FailureClass.LOST: 0.95, FailureClass.TIMEOUT: 0.9}
"""What the orchestrator has seen itself."""
_BY_RULE, _BY_DEFAULT = 0.5, 0.3
_SAME_COMMIT, _OTHER_COMMITS = 0.9, 0.5


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What somebody should know about a job that has failed."""

    job: str
    job_id: str
    failure_class: str
    """What speaks for itself most; what was retried and why is with the job."""
    confidence: float
    """From 0 to 1: how sure one can be who has only this evidence."""
    evidence: tuple[Evidence, ...]
    """The strongest first."""
    flaky: bool = False
    """It has passed and failed on one of the latest commits."""
    error: str = ""


def finding_of(
    job: RunJobView, sha: str, history: HistoryBody | None, signs: Sequence[Sign] = SIGNS
) -> Finding:
    """What is to be thought of a failed job."""
    failure = job.failure or FailureView(failure_class=FailureClass.USER, error="")
    evidence = [*evidence_in(failure, signs), _recorded(failure), *_remembered(sha, history)]
    weights: dict[str, float] = {}
    for one in evidence:
        # Independent signs of one class leave less and less room for doubt.
        weights[one.failure_class] = 1.0 - (1.0 - weights.get(one.failure_class, 0.0)) * (1.0 - one.weight)
    best = max(weights, key=lambda name: (weights[name], name == failure.failure_class))
    others = max((weight for name, weight in weights.items() if name != best), default=0.0)
    return Finding(
        job=job.name,
        job_id=job.job_id,
        failure_class=best,
        confidence=round(weights[best] * (1.0 - others / 2.0), 2),
        evidence=tuple(sorted(evidence, key=lambda one: -one.weight)[:MAX_EVIDENCE]),
        flaky=bool(history and history.contradictions()),
        error=failure.error[:300],
    )


def in_words(finding: Finding) -> str:
    """`test: infra, 90 % sure: memory ran out (Killed process 12)`."""
    best = next(one for one in finding.evidence if one.failure_class == finding.failure_class)
    shown = f" ({best.found})" if best.found else ""
    flaky = "; it is flaky" if finding.flaky and finding.failure_class != FailureClass.FLAKY else ""
    sure = f"{finding.confidence:.0%} sure"
    return f"{finding.job}: {finding.failure_class}, {sure}: {best.says}{shown}{flaky}"


def _recorded(failure: FailureView) -> Evidence:
    """What the failure was taken for when it happened; that decided whether it was tried again."""
    found = FailureClass(failure.failure_class)
    is_default = found is FailureClass.USER
    weight = _RECORDED.get(found, _BY_DEFAULT if is_default else _BY_RULE)
    says = "nothing says otherwise" if is_default else "it was taken for that when it happened"
    return Evidence(kind="record", says=says, failure_class=found, weight=weight)


def _remembered(sha: str, history: HistoryBody | None) -> list[Evidence]:
    contradictions = history.contradictions() if history else {}
    if not history or not contradictions:
        return []
    if here := contradictions.get(sha):
        says, weight = (
            f"it has passed and failed on this very commit: {outcomes_in_words(here)}",
            _SAME_COMMIT,
        )
    else:
        share = len(contradictions) / max(history.commits(), 1)
        says = f"it has passed and failed on {len(contradictions)} of the latest {history.commits()} commits"
        weight = round(_OTHER_COMMITS * (0.5 + share / 2.0), 2)
    found = ", ".join(sha[:12] for sha in list(contradictions)[:3])
    return [Evidence(kind="history", says=says, found=found, failure_class=FailureClass.FLAKY, weight=weight)]
