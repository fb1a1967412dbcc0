"""Requests about something that exists: the names in them are given the values that are real."""

from __future__ import annotations

import copy
import re
from collections import ChainMap
from collections.abc import Callable, Mapping
from typing import Any, cast

from tests.server.fuzzing.cases import Case

from interlock.wire.artifacts import LEASE as LEASE_HEADER
from interlock.wire.artifacts import RUNNER as RUNNER_HEADER

BROUGHT = frozenset({"artifact", "key"})
"""What is brought has a name of its own."""


def put_right(case: Case, real: Mapping[str, str]) -> Case:
    """The same request about something that exists; what it does not speak of it is not given.

    It is not repeated either: two ids that differ would be all that the server looks at.
    """
    real = meant(case.operation.label, real)
    own = BROUGHT if case.method == "PUT" else frozenset()
    path, query = dict(case.path_parameters), dict(case.query)
    body = copy.deepcopy(case.body) if isinstance(case.body, dict) else case.body
    several = [body.get(name) for name in ("messages", "facts")] if isinstance(body, dict) else []
    inner = [part for parts in several if isinstance(parts, list) for part in parts]
    for part in (path, query, body, *inner):
        _put_right(part, real, but=own)
    headers = {name: value for name, value in case.headers.items() if name.lower() != "idempotency-key"}
    _put_right(headers, {LEASE_HEADER: real.get("token", ""), RUNNER_HEADER: real.get("runner_id", "")})
    made: Case = case.operation.Case(
        method=case.method,
        path_parameters=path,
        query=query,
        headers=headers,
        cookies=case.cookies,
        body=body,
        media_type=case.media_type,
    )
    return made


def meant(label: str, real: Mapping[str, str]) -> Mapping[str, str]:
    """Return the real values by the names that an operation has for them."""
    for begins, meanings in MEANINGS.items():
        if re.match(begins, label):
            return ChainMap(meanings(real), cast(Any, real))
    return real


def _of_runs(real: Mapping[str, str]) -> dict[str, str]:
    """A filter is one of runs, and a job has a name."""
    run_id = real["run_id"]
    return {"id": run_id, "q": "workflow:a", "filter": f"id:{run_id}", "job": "only"}


def _of_deaths(real: Mapping[str, str]) -> dict[str, str]:
    """A worker that died has its name and its incarnation."""
    return {"name": real["runner_id"], "incarnation": real["worker_id"]}


def _of_simulations(real: Mapping[str, str]) -> dict[str, str]:
    """A worker of a simulation calls itself what it likes."""
    return {"worker_id": real["runner_id"]}


def _of_approvals(real: Mapping[str, str]) -> dict[str, str]:
    """The job is the one that waits for the approval."""
    return {"job_id": real["approval_id"].partition(".")[0]}


def _of_letters(real: Mapping[str, str]) -> dict[str, str]:
    """The job is one that has failed for good."""
    return {"job_id": real["letter_id"], "filter": f"id:{real['letter_id']}"}


MEANINGS: dict[str, Callable[[Mapping[str, str]], dict[str, str]]] = {
    r"\w+ /api/runs": _of_runs,
    r"\w+ /api/supervisor/deaths$": _of_deaths,
    r"\w+ /api/simulations": _of_simulations,
    r"\w+ /api/approvals": _of_approvals,
    r"\w+ /api/dead-letters": _of_letters,
    r"\w+ /api/schedules/": lambda real: {"schedule": real["schedule_name"]},
    r"POST /api/schedules$": lambda real: {"name": real["schedule_name"]},
    r"GET /api/limits/|POST /api/limits": lambda real: {"limit": real["limit_name"]},
}
"""Operations, by how their labels begin, that mean something of their own by a name that others use too.

`limit` is the name of a limit there, and the size of a page elsewhere, also where limits are listed.
"""


def _put_right(part: Any, real: Mapping[str, str], *, but: frozenset[str] = frozenset()) -> None:
    if isinstance(part, dict):
        names = [name for name in part if isinstance(name, str) and name in real and name not in but]
        part.update({name: real[name] for name in names})
