"""The requests: what the document names as bounds, and what comes by chance; the same ones every time."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.config import ProjectConfig, SchemathesisConfig
from schemathesis.core.result import Ok
from schemathesis.generation.drivers import CoverageGenerator
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.generation.overrides import Override
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi import checks

from interlock.server.app import every_route
from interlock.server.openapi import document_of
from interlock.server.routes import Route

Operation: TypeAlias = schemathesis.APIOperation[Any, Any, Any, Any]
Case: TypeAlias = schemathesis.Case[Any]

JSON = "application/json"

SAME_CHANCE = settings(
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)

load_all_checks()
ALWAYS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
AS_MADE = [*ALWAYS, checks.negative_data_rejection, checks.unsupported_method]
"""What was put right in a request may make it a good one, so this is for those that were left alone."""


REFUSALS = [400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 428, 429]
"""Answers to what the document does not allow; 413 to a token that is longer than a request may be."""
CONFIG = {"checks": {"negative_data_rejection": {"expected-statuses": REFUSALS}}}


def schema_of(more: Sequence[Route] = (), *, tokens: bool = False) -> BaseSchema:
    """The document of a server, as a fuzzer reads it."""
    return _read(more, tokens) if more else _own(tokens)


@functools.cache
def _own(tokens: bool) -> BaseSchema:
    return _read((), tokens)


def _read(more: Sequence[Route], tokens: bool) -> BaseSchema:
    document = json.loads(json.dumps(document_of(every_route(more), tokens_required=tokens)))
    return schemathesis.openapi.from_dict(document, config=SchemathesisConfig.from_dict(CONFIG))


def operations(schema: BaseSchema) -> dict[str, Operation]:
    """Everything that can be asked for, by method and address."""
    found = (result.ok() for result in schema.get_all_operations() if isinstance(result, Ok))
    return {operation.label: operation for operation in found}


def systematic(operation: Operation) -> Iterator[Case]:
    """Requests at and beyond every bound that the document names; always the same ones."""
    project: ProjectConfig = operation.schema.config
    generation = project.generation_for(operation=operation, phase="coverage")
    yield from CoverageGenerator(
        operation=operation,
        generation_modes=generation.modes,
        generation_config=generation,
        auth_storage=None,
        override=Override(),
        feedback=FeedbackSources(),
        hooks=None,
    )


def drawn(operation: Operation, number: int) -> list[Case]:
    """Requests by chance, good ones and bad ones, but the same chance every time."""
    cases: list[Case] = []
    modes = [operation.as_strategy(generation_mode=mode) for mode in GenerationMode]

    @settings(SAME_CHANCE, max_examples=number)
    @given(case=st.one_of(modes))
    def draw(case: Case) -> None:
        cases.append(case)

    draw()
    return cases


def example(operation: Operation) -> Case:
    """Return the request that the document shows, with what it requires; its names are made up."""
    raw = operation.definition.raw
    required = [part for part in raw["parameters"] if part.get("required")]
    given = {
        place: {part["name"]: "x" for part in required if part["in"] == place}
        for place in ("path", "query", "header")
    }
    shown = raw.get("requestBody", {}).get("content", {}).get(JSON, {}).get("example")
    with_body: dict[str, Any] = {}
    if shown is not None:
        body = {name: value for name, value in shown.items() if name != "request_id"}
        with_body = {"body": body, "media_type": JSON}
    made: Case = operation.Case(
        path_parameters=given["path"], query=given["query"], headers=given["header"], **with_body
    )
    return made
