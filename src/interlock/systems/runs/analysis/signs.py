"""What an exit code, a signal, an exception or a line of output says about a failure.

One table; what users say in `[[failures]]` goes before it. Each sign has a weight: how often somebody who
trusts it alone would be right. They are no measurements, but they are in one place to be argued about.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import msgspec

from interlock.systems.orchestrator.failures import DEFAULT_RULES, FailureClass, FailureRule
from interlock.wire.jobs import FailureView

MAX_QUOTE = 160
_BY_SHELL = 128
"""What a shell adds to the number of the signal that ended a command."""


class Sign(msgspec.Struct, frozen=True, kw_only=True):
    """Something that speaks for a class of failure."""

    says: str
    """In words, for people."""
    failure_class: FailureClass
    weight: float
    exit_codes: tuple[int, ...] = ()
    signals: tuple[str, ...] = ()
    exceptions: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()


class Evidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A sign that was found."""

    kind: str
    """exit_code, signal, exception, output, record or history."""
    says: str
    found: str = ""
    """Where it shows: the code, the name, the line."""
    failure_class: str
    weight: float


USER, INFRA, TOOLING = FailureClass.USER, FailureClass.INFRA, FailureClass.TOOLING
FLAKY, TIMEOUT, LOST = FailureClass.FLAKY, FailureClass.TIMEOUT, FailureClass.LOST

# fmt: off
SIGNS: tuple[Sign, ...] = (
    Sign(says="it was killed from outside, most often because memory ran out",
         failure_class=INFRA, weight=0.7, signals=("SIGKILL",)),
    Sign(says="it was told to end from outside", failure_class=INFRA, weight=0.6, signals=("SIGTERM",)),
    Sign(says="it has crashed by a fault of its own", failure_class=USER, weight=0.6,
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
    Sign(says="the network did not hold", failure_class=INFRA, weight=0.8,
         exceptions=("ConnectionError", "gaierror"),
         patterns=(r"(?i)connection (reset|refused|timed out)|network is unreachable|\bECONNRESET\b",
                   r"(?i)(temporary failure in name|could not) resol(ution|ve)|tls handshake timeout")),
    Sign(says="a service it needs was not available", failure_class=INFRA, weight=0.7,
         patterns=(r"(?i)\b50[234] (bad gateway|service unavailable|gateway time-?out)\b",)),
    Sign(says="a service it needs has had too many requests", failure_class=TOOLING, weight=0.8,
         patterns=(r"(?i)\b429 too many requests\b|toomanyrequests|rate limit exceeded",)),
    Sign(says="what it needs could not be installed", failure_class=TOOLING, weight=0.7,
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
    Sign(says="it says so itself", failure_class=FLAKY, weight=0.8, exceptions=("FlakyError", "Flaky")),
)
# fmt: on

OWN_WEIGHT = 0.9
"""Of a rule of the project's own: whoever wrote it has seen it before."""


def signs_of(rules: Iterable[FailureRule]) -> tuple[Sign, ...]:
    """The rules of a project's own, as signs, and after them the table."""
    own = (rule for rule in rules if rule not in DEFAULT_RULES)  # those are in the table, in more detail
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
    """Every sign that the failure shows, the strongest first."""
    found = [evidence for sign in signs for evidence in _shown(sign, failure)]
    return sorted(found, key=lambda evidence: -evidence.weight)


def signal_of(exit_code: int | None) -> str:
    """The name of the signal that has ended a process, by its exit code or by a shell's."""
    if exit_code is None:
        return ""
    number = -exit_code if exit_code < 0 else exit_code - _BY_SHELL
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""


def _shown(sign: Sign, failure: FailureView) -> Iterator[Evidence]:
    """How a failure shows a sign; in one way at most, the plainest first."""
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
