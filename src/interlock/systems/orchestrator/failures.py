"""Why things fail, and whether to try again.

Every failure has a class, found by rules that look at the exception, the exit code and the words;
the first rule that fits decides, and what fits none is the user's own. Each class has its own budget
of retries. The class `lost` is not among them: how often a job may lose its worker is counted apart,
so that a bad machine never uses up the tries of a good program.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache

import msgspec

from interlock.wire.jobs import RetryRule
from interlock.wire.runner import Failed


class FailureClass(StrEnum):
    """What kind of failure it was."""

    USER = "user"
    INFRA = "infra"
    TOOLING = "tooling"
    FLAKY = "flaky"
    TIMEOUT = "timeout"
    LOST = "lost"


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why an attempt did not succeed."""

    failure_class: FailureClass
    error: str
    exception: str = ""
    exit_code: int | None = None
    details: str = ""
    retry_after_s: float | None = None
    """How long the handler wants to wait before the next attempt."""


class FailureRule(msgspec.Struct, frozen=True, kw_only=True):
    """Failures that fit any of these belong to the class."""

    failure_class: FailureClass
    exceptions: tuple[str, ...] = ()
    """Names of types, bare or with their module; what derives from them fits as well."""
    exit_codes: tuple[int, ...] = ()
    patterns: tuple[str, ...] = ()
    """Regular expressions, searched for in the error and its details."""

    def fits(self, failed: Failed) -> bool:
        """Whether the failure is of this kind."""
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
        # 75 is sysexits' "try again later"; 137 and 143 are killed from outside.
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
"""Compilation errors, lint and tests that always fail are the user's: trying again would not help."""

DEFAULT_LOSSES = 3


def classify(failed: Failed, rules: Sequence[FailureRule] = DEFAULT_RULES) -> FailureClass:
    """The class of a failure: as the runner says, or by the first rule that fits."""
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
) -> RetryRule:
    """How failures of this class are tried again for one job."""
    if failure_class in own:
        return own[failure_class]
    rule = defaults.get(failure_class, RetryRule())
    if retries is not None and failure_class in (FailureClass.USER, FailureClass.TIMEOUT):
        return msgspec.structs.replace(rule, retries=retries)
    return rule


def pause_before(rule: RetryRule, retry: int, salt: str) -> timedelta:
    """How long to wait before the nth retry.

    The jitter comes from the salt rather than from chance, so that deciding stays a pure function:
    the same retry always waits as long, and different jobs wait differently.
    """
    growth = rule.factor ** min(retry - 1, 64)  # no pause needs more, and larger numbers are none
    pause_s = min(rule.first_pause_s * growth, rule.longest_pause_s)
    share = zlib.crc32(f"{salt}:{retry}".encode()) / 2**32
    return timedelta(seconds=pause_s * (1 + rule.jitter * share))


def _names_of(exception: str) -> set[str]:
    names = exception.split()
    return {*names, *(name.rpartition(".")[2] for name in names)}


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def timed_out(seconds: float) -> Failure:
    """An attempt that took too long."""
    return Failure(failure_class=FailureClass.TIMEOUT, error=f"It took longer than {seconds:g} s.")


def lost(runner_id: str) -> Failure:
    """An attempt of which nothing was heard any more."""
    return Failure(failure_class=FailureClass.LOST, error=f"Its runner {runner_id} was not heard of in time.")
