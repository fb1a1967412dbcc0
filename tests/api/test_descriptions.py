"""Texts of the API are in plain words: they become the OpenAPI document and the reference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from interlock.server.app import every_route
from interlock.server.openapi import document_of

DIALECT = re.compile(
    r"\b(somebody|nobody|whoever|anybody|everybody|any ?more|perhaps|go(es)? on|is told|so many|who)\b"
    r"|\b(how (many|often|long|much)( at most|\b.* is| it)|what (a|an|the|it|is|was|can|waits|to do))\b"
    r"|\bonly (those|what)\b|^(the same|also|do it|its own)\b",
    re.IGNORECASE,
)


def texts_in(part: Any, place: str) -> Iterator[tuple[str, str]]:
    """Yield each summary and description below a part of the document, with its place."""
    if isinstance(part, dict):
        for name, value in part.items():
            if name in ("summary", "description") and isinstance(value, str):
                yield place, value
            elif name not in ("example", "examples"):
                yield from texts_in(value, f"{place}/{name}")
    elif isinstance(part, list):
        for number, each in enumerate(part):
            yield from texts_in(each, f"{place}/{number}")


def is_dialect(text: str) -> bool:
    return DIALECT.search(text) is not None


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return document_of(every_route())


def test_every_text_of_the_api_is_in_plain_words(document: dict[str, Any]) -> None:
    texts = [*texts_in(document, "")]
    assert len(texts) > 1_000
    assert [(place, text) for place, text in texts if is_dialect(text)] == []


def test_every_parameter_of_an_operation_has_a_description(document: dict[str, Any]) -> None:
    parameters = [
        (f"{method} {path}", each)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        for each in operation.get("parameters", ())
    ]
    assert len(parameters) > 200
    assert [f"{place} {each['name']}" for place, each in parameters if not each.get("description")] == []


@pytest.mark.parametrize(
    "text",
    [
        "Also those that do not wait any more.",
        "Only those of this job.",
        "How many at most.",
        "Approve what a job waits for; the job goes on.",
        "Do it again, perhaps with another input.",
        "The same as a page, with every error.",
        "Show an approval: the question, who may answer, and the answer.",
    ],
)
def test_a_text_in_another_voice_is_noticed(text: str) -> None:
    assert is_dialect(text)


@pytest.mark.parametrize(
    "text", ["Maximum number of results.", "Show a batch: its state, and how many have ended."]
)
def test_a_plain_text_is_left_alone(text: str) -> None:
    assert not is_dialect(text)
