"""What holds for every answer and every line of the log, whatever was asked."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from interlock.api.problems import MEDIA_TYPE, Problem
from interlock.server.app import every_route
from interlock.wire.access import Issued
from interlock.wire.runner import Granted

CREDENTIAL = re.compile(r"il_[0-9a-f]{16}_[0-9a-f]{64}|j_[0-9a-f]{12}\.\d+\.\d+\.[0-9a-f]{32}", re.ASCII)
EXAMPLES = frozenset(
    found
    for route in every_route()
    for found in CREDENTIAL.findall(msgspec.json.encode((route.example, route.answer_example)).decode())
)
"""Those that the document shows."""
SHOWING = frozenset(
    f"{route.method} {route.path}" for route in every_route() if {*route.answers} & {Issued, Granted}
)
"""What answers with a credential, because that is what it is asked for."""


ALWAYS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "content-type": "",
    "x-request-id": "",
}
"""Headers of every answer; each with what it has to be, where that is always the same."""


class WrongAnswer(AssertionError):
    """An answer, or a line of the log, that must not be."""


def judge(
    label: str, status: int, headers: Mapping[str, Sequence[str]], body: bytes, log: io.StringIO
) -> None:
    """Raise when an answer or the log is wrong; the log is emptied."""
    written = log.getvalue()
    log.seek(0)
    log.truncate()
    if faults := [*_faults(label, status, headers, body), *_faults_of_log(written)]:
        raise WrongAnswer(f"{label} was answered {status}: {'; '.join(faults)}")


def _faults(label: str, status: int, headers: Mapping[str, Sequence[str]], body: bytes) -> Iterator[str]:
    if status >= 500 and status != 503:
        yield "an error of ours"
    if status >= 400 and (fault := _no_problem(status, headers, body)):
        yield fault
    yield from (
        f"its header {name} is not {value}" for name, value in ALWAYS.items() if _lacks(headers, name, value)
    )
    shown = set(CREDENTIAL.findall(body.decode("utf-8", "replace"))) - EXAMPLES
    if shown and not (label in SHOWING and status < 300):
        yield f"it shows a credential ({', '.join(each[:20] for each in shown)}...)"


def _lacks(headers: Mapping[str, Sequence[str]], name: str, value: str) -> bool:
    given = headers.get(name, ())
    return len(given) != 1 or (bool(value) and given[0] != value)


def _no_problem(status: int, headers: Mapping[str, Sequence[str]], body: bytes) -> str:
    (media,) = headers.get("content-type", ("",))
    if media.partition(";")[0] != MEDIA_TYPE:
        return f"it is {media!r}, not {MEDIA_TYPE}"
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except msgspec.DecodeError as error:
        return f"it is no problem: {error}"
    if problem.status != status or not (problem.code and problem.error and problem.request):
        return "the problem does not say what, why and where"
    return ""


def _faults_of_log(written: str) -> Iterator[str]:
    if "Traceback" in written:
        yield f"the log has a traceback: {written[-800:]}"
    if CREDENTIAL.search(written):
        yield "the log has a credential"
