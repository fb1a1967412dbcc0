"""Requests about something that exists: the names in them are given the values that are real."""

from __future__ import annotations

import copy
from collections import ChainMap
from collections.abc import Mapping
from typing import Any, cast

from tests.server.fuzzing.cases import Case

from interlock.wire.artifacts import LEASE as LEASE_HEADER
from interlock.wire.artifacts import RUNNER as RUNNER_HEADER

ABOUT_RUNS, ABOUT_DEATHS, ABOUT_SIMULATIONS = "/api/runs", "/api/supervisor/deaths", "/api/simulations"
BROUGHT = frozenset({"artifact", "key"})
"""What is brought has a name of its own."""


def put_right(case: Case, real: Mapping[str, str]) -> Case:
    """The same request about something that exists; what it does not speak of it is not given.

    It is not repeated either: two ids that differ would be all that the server looks at.
    """
    real = about_runs(real) if case.operation.path.startswith(ABOUT_RUNS) else real
    real = about_deaths(real) if case.operation.path == ABOUT_DEATHS else real
    real = about_simulations(real) if case.operation.path.startswith(ABOUT_SIMULATIONS) else real
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


def about_runs(real: Mapping[str, str]) -> Mapping[str, str]:
    """What names mean where runs are spoken of: there a filter is one of runs, and a job has a name."""
    run_id = real["run_id"]
    there = {"id": run_id, "q": "workflow:a", "filter": f"id:{run_id}", "job": "only"}
    return ChainMap(there, cast(Any, real))


def about_deaths(real: Mapping[str, str]) -> Mapping[str, str]:
    """What names mean where the death of a worker is told: it is called by its name and its incarnation."""
    there = {"name": real["runner_id"], "incarnation": real["worker_id"]}
    return ChainMap(there, cast(Any, real))


def about_simulations(real: Mapping[str, str]) -> Mapping[str, str]:
    """What names mean where simulations are spoken of: whoever executes one calls itself what it likes."""
    return ChainMap({"worker_id": real["runner_id"]}, cast(Any, real))


def _put_right(part: Any, real: Mapping[str, str], *, but: frozenset[str] = frozenset()) -> None:
    if isinstance(part, dict):
        names = [name for name in part if isinstance(name, str) and name in real and name not in but]
        part.update({name: real[name] for name in names})
