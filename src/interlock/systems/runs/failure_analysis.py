"""Failure analysis: why jobs of a run have failed, for people to read. It decides nothing.

Signs. One table maps exit codes, signals, exceptions and lines of output to failure classes; rules of users
in `[[failures]]` precede it. Each sign has a weight: the probability that it alone is right. The weights are
estimates, kept in one place.

Findings. Signs and the history of the job (`job_history`) are combined into a class, a confidence and the
evidence. Findings are computed on request from the jobs and their histories, and are not stored.

Learning uses a separate message, written in the commit that follows an outcome, so that neither the run nor
its reports wait for it.

Why: decisions 0197 and 0198.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache

import msgspec

from interlock.engine.unit_of_work import Decision, Engine
from interlock.errors import UnknownRun
from interlock.lifecycles.job import JOB
from interlock.lifecycles.run import SETTLED
from interlock.store.records import Commit, Committed, Key, Query, Record
from interlock.systems.orchestrator.body import decode_body
from interlock.systems.orchestrator.failures import DEFAULT_RULES, FailureClass, FailureRule
from interlock.systems.runs.job_history import (
    FLAKY,
    HISTORY,
    HistoryBody,
    JobIdentity,
    JobOutcome,
    body_of,
    forget_history,
    labels_of,
    outcome_of,
    outcomes_in_words,
    with_outcome,
)
from interlock.wire.jobs import FailureView
from interlock.wire.runs import (
    Evidence,
    FlakyJob,
    FlakyJobs,
    JobFinding,
    RunAnalysis,
    RunExplanation,
    RunJobView,
    RunView,
)

MAX_QUOTE = 160
_BY_SHELL = 128
"""Offset that a shell adds to the number of the signal that ended a command."""


class Sign(msgspec.Struct, frozen=True, kw_only=True):
    """A sign of a failure class."""

    says: str
    """Description for people."""
    failure_class: FailureClass
    weight: float
    exit_codes: tuple[int, ...] = ()
    signals: tuple[str, ...] = ()
    exceptions: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()


USER, INFRA, TOOLING = FailureClass.USER, FailureClass.INFRA, FailureClass.TOOLING
FLAKY_FAILURE, TIMEOUT, LOST = FailureClass.FLAKY, FailureClass.TIMEOUT, FailureClass.LOST

# fmt: off
SIGNS: tuple[Sign, ...] = (
    Sign(says="it was killed from outside, most often because memory ran out",
         failure_class=INFRA, weight=0.7, signals=("SIGKILL",)),
    Sign(says="it was terminated from outside", failure_class=INFRA, weight=0.6, signals=("SIGTERM",)),
    Sign(says="it has crashed", failure_class=USER, weight=0.6,
         signals=("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE")),
    Sign(says="it has used up its processor time", failure_class=TIMEOUT, weight=0.8, signals=("SIGXCPU",)),
    Sign(says="timeout(1) has ended it", failure_class=TIMEOUT, weight=0.8, exit_codes=(124,)),
    Sign(says="the command cannot be executed", failure_class=TOOLING, weight=0.8, exit_codes=(126,)),
    Sign(says="the command was not found", failure_class=TOOLING, weight=0.9, exit_codes=(127,)),
    Sign(says="it asks to be tried again later", failure_class=INFRA, weight=0.8, exit_codes=(75,)),

    Sign(says="memory ran out", failure_class=INFRA, weight=0.9, exceptions=("MemoryError",),
         patterns=(r"(?i)\bout of memory\b|cannot allocate memory|oom-kill|java heap space",)),
    Sign(says="the disk is full", failure_class=INFRA, weight=0.95,
         patterns=(r"(?i)no space left on device|disk quota exceeded",)),
    Sign(says="the network failed", failure_class=INFRA, weight=0.8,
         exceptions=("ConnectionError", "gaierror"),
         patterns=(r"(?i)connection (reset|refused|timed out)|network is unreachable|\bECONNRESET\b",
                   r"(?i)(temporary failure in name|could not) resol(ution|ve)|tls handshake timeout")),
    Sign(says="a service it needs was not available", failure_class=INFRA, weight=0.7,
         patterns=(r"(?i)\b50[234] (bad gateway|service unavailable|gateway time-?out)\b",)),
    Sign(says="a service it needs has had too many requests", failure_class=TOOLING, weight=0.8,
         patterns=(r"(?i)\b429 too many requests\b|toomanyrequests|rate limit exceeded",)),
    Sign(says="a package it needs could not be installed", failure_class=TOOLING, weight=0.7,
         patterns=(r"(?i)no matching distribution found|npm err! (code|network)|unable to locate package",)),
    Sign(says="a test has failed", failure_class=USER, weight=0.85, exceptions=("AssertionError",),
         patterns=(r"(?m)^(FAILED|ERROR) \S+::\S+|^=+ .*\b\d+ failed\b|^--- FAIL: |^Tests: +\d+ failed",)),
    Sign(says="it does not compile or parse", failure_class=USER, weight=0.9,
         exceptions=("SyntaxError", "IndentationError"),
         patterns=(r"(?m)^\S+:\d+(:\d+)?: (fatal )?error: |\bSyntaxError: |^error(\[E\d+\])?: ",)),
    Sign(says="something is missing in the code", failure_class=USER, weight=0.7,
         exceptions=("ImportError", "NameError", "AttributeError"),
         patterns=(r"\bModuleNotFoundError: |\bCannot find module\b",)),
    Sign(says="it did not end in time", failure_class=TIMEOUT, weight=0.6, exceptions=("TimeoutError",),
         patterns=(r"(?i)\b(test|step|operation) timed out\b",)),
    Sign(says="its own message names the cause", failure_class=FLAKY_FAILURE, weight=0.8,
         exceptions=("FlakyError", "Flaky")),
)
# fmt: on

OWN_WEIGHT = 0.9
"""Weight of a rule of the project, which is specific."""


def signs_of(rules: Iterable[FailureRule]) -> tuple[Sign, ...]:
    """Return the rules of the project as signs, followed by the table."""
    own = (rule for rule in rules if rule not in DEFAULT_RULES)  # the table has them in more detail
    return (*_as_signs(own), *SIGNS)


def _as_signs(rules: Iterable[FailureRule]) -> tuple[Sign, ...]:
    return tuple(
        Sign(
            says="a rule of this project says so",
            failure_class=rule.failure_class,
            weight=OWN_WEIGHT,
            exit_codes=rule.exit_codes,
            exceptions=rule.exceptions,
            patterns=rule.patterns,
        )
        for rule in rules
    )


def evidence_in(failure: FailureView, signs: Sequence[Sign] = SIGNS) -> list[Evidence]:
    """Return every sign that the failure shows, the strongest first."""
    found = [evidence for sign in signs for evidence in _shown(sign, failure)]
    return sorted(found, key=lambda evidence: -evidence.weight)


def signal_of(exit_code: int | None) -> str:
    """Return the name of the signal that ended a process.

    It comes from the exit code of the process or of a shell.
    """
    if exit_code is None:
        return ""
    number = -exit_code if exit_code < 0 else exit_code - _BY_SHELL
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""


def _shown(sign: Sign, failure: FailureView) -> Iterator[Evidence]:
    """Yield the evidence of a sign, at most once, the most specific first."""
    for kind, found in _ways(sign, failure):
        if found:
            yield Evidence(
                kind=kind,
                says=sign.says,
                found=found,
                failure_class=sign.failure_class,
                weight=sign.weight,
            )
            return


def _ways(sign: Sign, failure: FailureView) -> Iterator[tuple[str, str]]:
    code, name = failure.exit_code, signal_of(failure.exit_code)
    yield "exit_code", f"exit code {code}" if code is not None and code in sign.exit_codes else ""
    yield "signal", f"{name} (exit code {code})" if name in sign.signals else ""
    named = {*failure.exception.split(), *(e.rpartition(".")[2] for e in failure.exception.split())}
    yield "exception", ", ".join(sorted(named & set(sign.exceptions)))
    text = f"{failure.error}\n{failure.details}"
    for pattern in sign.patterns:
        match = _compiled(pattern).search(text)
        yield "output", _line_around(text, match.start(), match.end()) if match else ""


def _line_around(text: str, start: int, end: int) -> str:
    begin = text.rfind("\n", 0, start) + 1
    stop = text.find("\n", end)
    line = text[begin : stop if stop >= 0 else len(text)].strip()
    return line if len(line) <= MAX_QUOTE else text[start:end].strip()[:MAX_QUOTE] or line[:MAX_QUOTE]


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


MAX_EVIDENCE = 8
_RECORDED = {FailureClass.LOST: 0.95, FailureClass.TIMEOUT: 0.9}
"""Weights of classes that the orchestrator observed itself."""
_BY_RULE, _BY_DEFAULT = 0.5, 0.3
_SAME_COMMIT, _OTHER_COMMITS = 0.9, 0.5


def finding_of(
    job: RunJobView, sha: str, history: HistoryBody | None, signs: Sequence[Sign] = SIGNS
) -> JobFinding:
    """Return the finding about a failed job."""
    failure = job.failure or FailureView(failure_class=FailureClass.USER, error="")
    evidence = [*evidence_in(failure, signs), _recorded(failure), *_remembered(sha, history)]
    weights: dict[str, float] = {}
    for one in evidence:
        # Independent signs of one class increase the confidence.
        weights[one.failure_class] = 1.0 - (1.0 - weights.get(one.failure_class, 0.0)) * (1.0 - one.weight)
    best = max(weights, key=lambda name: (weights[name], name == failure.failure_class))
    others = max((weight for name, weight in weights.items() if name != best), default=0.0)
    return JobFinding(
        job=job.name,
        job_id=job.job_id,
        failure_class=best,
        confidence=round(weights[best] * (1.0 - others / 2.0), 2),
        evidence=tuple(sorted(evidence, key=lambda one: -one.weight)[:MAX_EVIDENCE]),
        flaky=bool(history and history.contradictions()),
        error=failure.error[:300],
    )


def in_words(finding: JobFinding) -> str:
    """Return a finding in words.

    For example `test: infra, 90 % sure: memory ran out (Killed process 12)`.
    """
    best = next(one for one in finding.evidence if one.failure_class == finding.failure_class)
    shown = f" ({best.found})" if best.found else ""
    flaky = "; it is flaky" if finding.flaky and finding.failure_class != FailureClass.FLAKY else ""
    sure = f"{finding.confidence:.0%} sure"
    return f"{finding.job}: {finding.failure_class}, {sure}: {best.says}{shown}{flaky}"


def _recorded(failure: FailureView) -> Evidence:
    """Return the recorded class of the failure as evidence.

    It has decided about retries.
    """
    found = FailureClass(failure.failure_class)
    is_default = found is FailureClass.USER
    weight = _RECORDED.get(found, _BY_DEFAULT if is_default else _BY_RULE)
    reason = "there is no other evidence" if is_default else "it was classified like that when it happened"
    return Evidence(kind="record", says=reason, failure_class=found, weight=weight)


def _remembered(sha: str, history: HistoryBody | None) -> list[Evidence]:
    contradictions = history.contradictions() if history else {}
    if not history or not contradictions:
        return []
    if here := contradictions.get(sha):
        reason, weight = (
            f"it has passed and failed on this very commit: {outcomes_in_words(here)}",
            _SAME_COMMIT,
        )
    else:
        share = len(contradictions) / max(history.commits(), 1)
        reason = (
            f"it has passed and failed on {len(contradictions)} of the latest {history.commits()} commits"
        )
        weight = round(_OTHER_COMMITS * (0.5 + share / 2.0), 2)
    found = ", ".join(sha[:12] for sha in list(contradictions)[:3])
    return [
        Evidence(kind="history", says=reason, found=found, failure_class=FailureClass.FLAKY, weight=weight)
    ]


AT_ONCE = 200
MAX_FINDINGS = 100
MAX_WORDS = 10
MAX_LOOKED_AT = 500


class FailureAnalyser:
    """Analyses runs that have ended."""

    def __init__(
        self, engine: Engine, view: Callable[[str], Awaitable[RunView]], signs: Sequence[Sign] = SIGNS
    ) -> None:
        self._engine = engine
        self._view = view
        self._signs = tuple(signs)

    async def of(self, run_id: str) -> RunAnalysis:
        """Return the findings about the failed jobs of a run."""
        run = await self._view(run_id)
        findings, more = await self._findings(run)
        return RunAnalysis(run_id=run_id, findings=findings, more=more, flaky=await self._flaky_in(run))

    async def explained(self, explanation: RunExplanation) -> RunExplanation:
        """Return the explanation with the findings of its failed jobs."""
        if explanation.state not in SETTLED:
            return explanation
        findings, _ = await self._findings(await self._view(explanation.run_id))
        return msgspec.structs.replace(explanation, findings=tuple(map(in_words, findings[:MAX_WORDS])))

    async def flaky(
        self, *, repository: str = "", workflow: str = "", cursor: str = "", limit: int = 100
    ) -> FlakyJobs:
        """Return flaky jobs, of one repository or workflow or of all."""
        page = await self._engine.store.find(
            Query(
                kind=HISTORY.name,
                states=(FLAKY,),
                labels=labels_of(repository, workflow),
                cursor=cursor,
                limit=limit,
            )
        )
        return FlakyJobs(jobs=tuple(map(_flaky_job, page.records)), cursor=page.cursor)

    async def learn(self, run_id: str) -> None:
        """Record the outcomes of the jobs of a run: the handler of its messages.

        Idempotent.
        """
        try:
            run = await self._view(run_id)
        except UnknownRun:
            return  # it was pruned
        if not (run.source.repository and run.source.sha):
            return
        for start in range(0, len(run.jobs), AT_ONCE):
            await self._learn(run, run.jobs[start : start + AT_ONCE])

    async def sweep(self, *, limit: int = 100) -> int:
        """Remove histories without a recent outcome."""

        def decide(records: Sequence[Record], now: datetime) -> list[Commit]:
            return [Commit(changes=(forget_history(record, now),)) for record in records]

        outcomes = await self._engine.due([HISTORY.name], limit, decide)
        return sum(isinstance(outcome, Committed) for outcome in outcomes)

    async def _learn(self, run: RunView, jobs: Sequence[RunJobView]) -> None:
        records = await self._engine.store.load([Key(JOB.name, job.job_id) for job in jobs])
        pairs = [(job, _ended(run.source.sha, record)) for job, record in zip(jobs, records, strict=True)]
        new = [(_named(run, job), ended) for job, ended in pairs if ended is not None]

        def decide(before: Sequence[Record | None], now: datetime) -> Decision[None]:
            found = [
                with_outcome(record, name, ended, now)
                for record, (name, ended) in zip(before, new, strict=True)
            ]
            changes = tuple(change for change in found if change is not None)
            return Decision(None, Commit(changes=changes) if changes else None)

        if new:
            await self._engine.apply([Key(HISTORY.name, name.id) for name, _ in new], decide)

    async def _findings(self, run: RunView) -> tuple[tuple[JobFinding, ...], int]:
        failed = [job for job in run.jobs if job.failure is not None]
        shown = failed[:MAX_FINDINGS]
        records = await self._histories(run, shown)
        findings = [
            finding_of(job, run.source.sha, body_of(record) if record else None, self._signs)
            for job, record in zip(shown, records, strict=True)
        ]
        return tuple(findings), len(failed) - len(shown)

    async def _flaky_in(self, run: RunView) -> tuple[FlakyJob, ...]:
        """Return the flaky jobs of a run, among its first jobs if it is large."""
        found = await self._histories(run, run.jobs[:MAX_LOOKED_AT])
        flaky = [_flaky_job(record) for record in found if record and record.state == FLAKY]
        return tuple(flaky[:MAX_FINDINGS])

    async def _histories(self, run: RunView, jobs: Sequence[RunJobView]) -> list[Record | None]:
        if not run.source.repository or not jobs:
            return [None] * len(jobs)
        return list(await self._engine.store.load([Key(HISTORY.name, _named(run, job).id) for job in jobs]))


def _named(run: RunView, job: RunJobView) -> JobIdentity:
    return JobIdentity(run.source.repository, run.workflow, job.name)


def _ended(sha: str, record: Record | None) -> JobOutcome | None:
    return outcome_of(sha, record.id, record.state, decode_body(record.body)) if record else None


def _flaky_job(record: Record) -> FlakyJob:
    body = body_of(record)
    contradictions = body.contradictions()
    sha = next(iter(contradictions), "")
    return FlakyJob(
        repository=body.named.repository,
        workflow=body.named.workflow,
        job=body.named.job,
        commits=body.commits(),
        contradicted=len(contradictions),
        latest_sha=sha,
        latest=outcomes_in_words(contradictions.get(sha, ())),
        updated_at=record.updated_at,
    )
