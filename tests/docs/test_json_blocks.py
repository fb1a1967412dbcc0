"""Every block of JSON is compared with what a server sends, or converted to what a job takes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.docs import test_other_blocks, test_runner_protocol_page, test_webhooks_pages
from tests.server.running import running

from interlock.errors import InvalidArguments
from interlock.worker.functions import Arguments
from interlock.worker.shell import NAME, shell
from interlock.worker.shell_files import check_caches, check_names

COMPARED = {
    ("running-a-server.md", '{"type": "/docs#terminal_state"'): "an error of a server",
    ("running-workers.md", '{"run": "make test", "artifacts"'): "an input of a shell job",
    ("running-workers.md", '{"run": "make deps test", "caches"'): "an input of a shell job",
}
"""Blocks of JSON, by their page and beginning, and what they are compared with."""
COMPARED_AS_A_WHOLE = {
    "runner-protocol.md": test_runner_protocol_page.__name__,
    "outgoing-webhooks.md": test_webhooks_pages.__name__,
}
"""Pages with all of their JSON, and the test that compares it."""


def places_of(page: str, text: str) -> list[tuple[str, str]]:
    return [place for place in COMPARED if place[0] == page and text.startswith(place[1])]


def fault_of(page: str, text: str) -> str:
    """Return why nothing compares a block; empty if something does."""
    if page in COMPARED_AS_A_WHOLE or len(places_of(page, text)) == 1:
        return ""
    return f"{page}: {text.splitlines()[0]} is JSON, and not compared"


def compared(kind: str) -> list[str]:
    """Return the blocks that are compared in one way."""
    return [
        text
        for page, text in test_other_blocks.blocks("json")
        if any(COMPARED[place] == kind for place in places_of(page, text))
    ]


def shell_input(text: str) -> dict[str, Any]:
    """Convert the input of a shell job as a worker does; raise if it has a fault."""
    _, named = Arguments(shell, NAME, {}).decode(text.encode())
    check_names(named["artifacts"] or [])
    check_caches(named["caches"] or [])
    return named


def test_every_block_of_json_is_compared_with_something() -> None:
    found = test_other_blocks.blocks("json")
    assert {place for page, text in found for place in places_of(page, text)} == COMPARED.keys()
    assert {page for page, _ in found} == {page for page, _ in COMPARED} | COMPARED_AS_A_WHOLE.keys()
    assert [fault for page, text in found if (fault := fault_of(page, text))] == []


@pytest.mark.parametrize("page", ["running-a-server.md", "running-workers.md", "fencing.md"])
def test_json_that_nothing_compares_is_noticed(page: str) -> None:
    assert fault_of(page, '{"run": "make"}\n')


async def test_the_error_on_the_page_is_the_one_that_a_server_returns() -> None:
    (block,) = compared("an error of a server")
    async with running() as server:
        job_id = await server.submit()
        await server.work(job_id)
        response = await server.client().post(f"/api/jobs/{job_id}/cancel")
        returned = response.json()
        found = json.loads(block)
        assert len(found.pop("request")) == len(returned.pop("request"))
        assert list(found.items()) == list(returned.items())
        assert (response.status_code, response.headers["Content-Type"]) == (409, "application/problem+json")


def test_the_inputs_of_shell_jobs_are_those_that_the_task_takes() -> None:
    artifacts, caches = map(shell_input, compared("an input of a shell job"))
    assert [one.paths for one in artifacts["artifacts"]] == [["report.xml"], ["htmlcov"]]
    assert [(one.key, one.files, one.restore_keys) for one in caches["caches"]] == [
        ("deps", ["*.lock"], ["deps-"])
    ]


@pytest.mark.parametrize(
    "text",
    [
        '{"run": "make", "artefacts": []}',
        '{"run": "make", "artifacts": [{"name": "report.xml", "paths": "report.xml"}]}',
        '{"run": "make", "caches": [{"key": "deps", "path": "vendor", "restore-keys": []}]}',
    ],
)
def test_an_input_that_a_shell_job_refuses_is_noticed(text: str) -> None:
    with pytest.raises(InvalidArguments):
        shell_input(text)
