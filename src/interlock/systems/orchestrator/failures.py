"""Failure classes and retries.

Every failure has a class, found by rules over the exception, the exit code and the text; the first rule that
matches decides, and the default is `user`. Each class has its own retry budget. The class `lost` is not among
them: losses of workers are counted separately, so that a bad machine never uses up the retries of a good
program.

Why: decisions 0125 and 0126.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache

import msgspec

from interlock.backoff import jittered_s, nth_pause_s
from interlock.wire.jobs import RetryRule
from interlock.wire.runner import Failed


class FailureClass(StrEnum):
    """The class of a failure."""

    USER = "user"
    INFRA = "infra"
    TOOLING = "tooling"
    FLAKY = "flaky"
    TIMEOUT = "timeout"
    LOST = "lost"
    EXPIRED = "expired"


RETRIED = tuple(each for each in FailureClass if each not in (FailureClass.LOST, FailureClass.EXPIRED))
"""The classes that have retries: losses are counted apart, and a job that has expired never began."""


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The failure of an attempt."""

    failure_class: FailureClass
    error: str
    exception: str = ""
    exit_code: int | None = None
    details: str = ""
    retry_after_s: float | None = None
    """The delay before the next attempt that the handler requests."""
    retry_at: datetime | None = None
    """Time of the next attempt, set by the handler; takes precedence over `retry_after_s`."""

    @property
    def asks_for_retry(self) -> bool:
        """Whether the handler says when it is to be tried again."""
        return self.retry_after_s is not None or self.retry_at is not None


class FailureRule(msgspec.Struct, frozen=True, kw_only=True, rename={"failure_class": "class"}):
    """A rule that assigns a class to matching failures; rules of the project precede the built-in ones."""

    failure_class: FailureClass
    exceptions: tuple[str, ...] = ()
    """Names of exception types, bare or with their module; subclasses match as well."""
    exit_codes: tuple[int, ...] = ()
    patterns: tuple[str, ...] = ()
    """Regular expressions, searched for in the error and its details."""

    def fits(self, failed: Failed) -> bool:
        """Return whether the failure matches."""
        if self.exceptions and not _names_of(failed.exception).isdisjoint(self.exceptions):
            return True
        if failed.exit_code is not None and failed.exit_code in self.exit_codes:
            return True
        text = f"{failed.error}\n{failed.details}"
        return any(_compiled(pattern).search(text) for pattern in self.patterns)


DEFAULT_RULES = (
    FailureRule(failure_class=FailureClass.FLAKY, exceptions=("FlakyError", "Flaky")),
    FailureRule(
        failure_class=FailureClass.TOOLING,
        exceptions=("UnknownTask", "CannotLoad"),
        exit_codes=(126, 127),
        patterns=(r"(?i)\b(429 too many requests|toomanyrequests|cache (miss|restore) failed)\b",),
    ),
    FailureRule(
        failure_class=FailureClass.INFRA,
        exceptions=("ConnectionError", "StoreUnavailable", "MemoryError", "socket.gaierror"),
        # 75 is "try again later" in sysexits; 137 and 143 mean killed from outside.
        exit_codes=(75, 137, 143, -9, -15),
        patterns=(
            r"(?i)connection (reset|refused|timed out)|temporary failure in name resolution",
            r"(?i)no space left on device|cannot allocate memory|network is unreachable",
            r"(?i)\b50[234] (bad gateway|service unavailable|gateway time-?out)\b",
        ),
    ),
)

DEFAULT_RETRIES: Mapping[FailureClass, RetryRule] = {
    FailureClass.USER: RetryRule(retries=0),
    FailureClass.TIMEOUT: RetryRule(retries=0),
    FailureClass.FLAKY: RetryRule(retries=2, first_pause_s=0.5),
    FailureClass.TOOLING: RetryRule(retries=2, first_pause_s=2.0),
    FailureClass.INFRA: RetryRule(retries=3, first_pause_s=1.0),
}
"""Compilation errors, lint and failing tests are of class user: retrying would not help."""

DEFAULT_LOSSES = 3


def classify(failed: Failed, rules: Sequence[FailureRule] = DEFAULT_RULES) -> FailureClass:
    """Return the class of a failure, by the runner or the first rule."""
    if failed.failure_class:
        return FailureClass(failed.failure_class)
    for rule in rules:
        if rule.fits(failed):
            return rule.failure_class
    return FailureClass.USER


def rule_for(
    failure_class: FailureClass,
    *,
    retries: int | None,
    own: Mapping[str, RetryRule],
    defaults: Mapping[FailureClass, RetryRule] = DEFAULT_RETRIES,
    requested: bool = False,
) -> RetryRule:
    """Return the retry rule of a class for one job.

    `asked`: the handler has said when to try again; then the job's own number of retries counts, if larger.
    """
    if failure_class in own:
        return own[failure_class]
    rule = defaults.get(failure_class, RetryRule())
    if requested and retries is not None and retries > rule.retries:
        return msgspec.structs.replace(rule, retries=retries)
    if retries is not None and failure_class in (FailureClass.USER, FailureClass.TIMEOUT):
        return msgspec.structs.replace(rule, retries=retries)
    return rule


def pause_before(rule: RetryRule, retry: int, salt: str) -> timedelta:
    """Return the pause before the nth retry.

    The jitter is derived from the salt instead of a random number, so that the decision stays pure: the same
    retry always has the same pause, and different jobs have different ones.
    """
    pause_s = nth_pause_s(retry, rule.first_pause_s, rule.longest_pause_s, rule.factor)
    return timedelta(seconds=jittered_s(pause_s, f"{salt}:{retry}", span=rule.jitter))


def _names_of(exception: str) -> set[str]:
    names = exception.split()
    return {*names, *(name.rpartition(".")[2] for name in names)}


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def timed_out(seconds: float) -> Failure:
    """Return the failure of an attempt that timed out."""
    return Failure(failure_class=FailureClass.TIMEOUT, error=f"It took longer than {seconds:g} s.")


def expired(not_after: datetime) -> Failure:
    """Return the failure of a job that no worker has started in time."""
    at = not_after.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return Failure(failure_class=FailureClass.EXPIRED, error=f"No worker started it before {at}.")


def lost(runner_id: str) -> Failure:
    """Return the failure of a lost attempt."""
    return Failure(
        failure_class=FailureClass.LOST, error=f"Its runner {runner_id} sent no heartbeat in time."
    )
