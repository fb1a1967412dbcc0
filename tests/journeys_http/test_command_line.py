"""The command line through a server: `--server URL` where `--store URL` would stand."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.journeys import errands
from tests.journeys_http.serving import Served
from tests.programs import Program
from tests.waiting import PROGRAM_S

from interlock.cli.main import main

NOWHERE = "http://127.0.0.1:9"
"""Where no server is."""


class Person:
    """Somebody at a terminal who has a token, and no way to the database."""

    def __init__(self, server: str, token: str) -> None:
        self._server = server
        self._environment = {**os.environ, "INTERLOCK_TOKEN": token, "NO_COLOR": "1", "INTERLOCK_URL": ""}

    def start(self, *words: str) -> Program:
        """Start a command that goes on."""
        return Program(*words, "--server", self._server, folder="/", environment=self._environment)

    async def says(self, *words: str, code: int = 0) -> str:
        """Return what a command prints, in this process; the errors when it should fail."""
        return await self.tells(*words, "--server", self._server, code=code)

    async def tells(self, *words: str, code: int) -> str:
        """The same without the address of the server."""
        out, err = io.StringIO(), io.StringIO()
        with (
            patch.dict(os.environ, self._environment),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            ended = await asyncio.to_thread(main, words)
        assert ended == code, f"{words} ended with {ended}: {err.getvalue()[-500:]} {out.getvalue()[-500:]}"
        return (err if code == 2 else out).getvalue()


@pytest.fixture
def person(served: Served, monkeypatch: pytest.MonkeyPatch) -> Person:
    monkeypatch.chdir(Path("/"))  # far from any project
    return Person(served.server.url, served.tokens["somebody"])


async def test_the_command_line_submits_explains_follows_and_lists_a_job_through_a_server(
    served: Served, person: Person
) -> None:
    job_id = (await person.says("submit", "--shell", "echo hello; echo world", "--queue", "mail")).strip()
    assert "mail" in await person.says("queue", "list")
    assert json.loads(await person.says("job", "show", job_id[:-2], "--json"))["state"] == "PENDING"
    assert "waits for a worker of the queue mail" in await person.says("job", "explain", job_id)
    following = person.start("job", "logs", job_id, "--follow", "--plain")
    watching = person.start("job", "watch", job_id)

    await served.start("anna", "--queue", "mail")

    assert (await person.says("job", "wait", job_id, "--timeout", f"{PROGRAM_S:g}s")).split("\t")[
        1
    ] == "COMPLETED"
    lines, _ = await asyncio.to_thread(following.communicate)
    assert lines.split() == ["hello", "world"]
    steps, _ = await asyncio.to_thread(watching.communicate)
    assert "COMPLETED" in steps
    assert watching.returncode == 0
    assert job_id in await person.says("job", "list", "state:completed", "queue:mail", "since:1h")
    assert "acknowledged" in await person.says("job", "history", job_id)
    assert (await person.says("job", "logs", job_id, "--plain")).split() == ["hello", "world"]


async def test_jobs_are_stopped_and_done_again_one_by_one_and_by_a_filter(
    served: Served, person: Person
) -> None:
    first = (await person.says("submit", "shop.send", "--unchecked", "--count", "3")).split()
    assert "CANCELED" in await person.says("job", "cancel", first[0], "--reason", "wrong branch")
    assert len((await person.says("job", "cancel", "state:pending", "--yes")).split("\n")) == 3
    again = (await person.says("job", "retry", first[0])).strip()
    view = json.loads(await person.says("job", "show", again, "--json"))
    assert view["origin_job_id"] == first[0]
    (stop,) = [entry for entry in await served.history(first[0]) if entry.note.reason]
    assert (stop.note.actor, stop.note.reason) == ("somebody", "wrong branch")


async def test_real_workers_are_previewed_held_and_ended_by_a_filter_through_a_server(
    served: Served, person: Person
) -> None:
    workers = [await served.ready(name, "--label", "gpu") for name in ("anna", "berta")]
    preview = [line.split("\t")[1] for line in (await _preview(person)).splitlines()]
    assert sorted(preview) == ["anna", "berta"]
    assert "without confirmation" in await person.says("worker", "drain", "label:gpu", code=2)
    ended = await person.says("worker", "drain", "label:gpu", "--reason", "new code", "--yes")
    assert ended.count("new code") == 2
    assert [await worker.gone() for worker in workers] == [0, 0]
    output = await person.says("worker", "list", "label:gpu", "--all", "--json")
    assert {(view["state"], view["draining"]) for view in json.loads(output)} == {("COMPLETED", True)}
    assert "In COMPLETED the worker accepts: terminate" in await person.says(
        "worker", "pause", "anna", code=2
    )


async def _preview(person: Person) -> str:
    """Which workers a filter means, once both are in the books."""
    async with asyncio.timeout(PROGRAM_S):
        while (shown := await person.says("worker", "drain", "label:gpu", "--dry-run")).count("\n") < 2:
            pass
    return shown


async def test_errors_of_a_server_are_printed_with_their_reason_and_exit_code_2(
    served: Served, person: Person
) -> None:
    stderr = await person.says("job", "show", "j_0123456789ab", code=2)
    assert stderr.startswith("Error: There is no job j_0123456789ab.")
    assert "did you mean" in (await person.says("job", "list", "state:fialed", code=2)).lower()
    runner = Person(served.server.url, served.tokens["runners"])
    assert "needs viewer" in await runner.says("job", "list", code=2)
    stranger = Person(served.server.url, "il_nobody")
    assert "token" in await stranger.says("job", "list", code=2)


async def test_a_command_that_needs_the_database_refuses_the_url_of_a_server() -> None:
    stderr = await Person(NOWHERE, "").tells("db", "status", "--store", NOWHERE, code=2)
    assert "is a server, and this command needs the database itself" in stderr


async def test_tokens_are_managed_through_a_server_as_in_its_database(served: Served) -> None:
    root = Person(served.server.url, served.tokens["boss"])
    made = json.loads(
        await root.says("token", "create", "ci", "--role", "viewer", "--queue", "mail", "--json")
    )
    assert made["view"]["queues"] == ["mail"]
    assert "secret" not in await root.says("token", "show", "ci")
    rotated = json.loads(await root.says("token", "rotate", "ci", "--overlap", "1h", "--json"))
    assert rotated["token"].split("_")[1] == made["token"].split("_")[1]
    assert rotated["view"]["state"] == "rotating"
    for token in (made["token"], rotated["token"]):
        assert "mail" not in await Person(served.server.url, token).says("job", "list")
    listed = json.loads(await root.says("token", "list", "--json"))
    assert [view["state"] for view in listed if view["name"] == "ci"] == ["rotating"]
    assert "is revoked" in await root.says("token", "revoke", "ci", "--reason", "enough")
    assert "There is no token nobody" in await root.says("token", "show", "nobody", code=2)
    operator = Person(served.server.url, served.tokens["somebody"])
    assert "this needs admin" in await operator.says("token", "list", code=2)


async def test_a_server_that_is_not_there_is_reported_in_a_sentence() -> None:
    stderr = await Person(NOWHERE, "il_somebody").says("job", "list", code=2)
    assert stderr.startswith(
        f"Error: Cannot connect to the server at {NOWHERE}: Connection refused. Nothing was done."
    )
    assert "Traceback" not in stderr


async def test_a_worker_without_a_token_prints_the_error_and_exits_with_code_2(served: Served) -> None:
    served.tokens["runners"] = ""
    anna = await served.start("anna")
    assert await anna.gone() == 2
    assert any("The request has no token" in line for line in anna.words)


async def test_a_burst_worker_of_a_server_waits_for_the_retry_of_a_failed_job(served: Served) -> None:
    made = await served.il.submit(errands.at_second_try)
    anna = await served.start("anna", "--burst")
    assert await anna.gone() == 0
    assert [attempt.state for attempt in (await made.view()).attempts] == ["FAILED", "SUCCEEDED"]


@pytest.mark.long
async def test_a_burst_through_a_server_does_all_there_is_and_ends(served: Served) -> None:
    made = [await served.il.submit(errands.jot, number) for number in range(3)]
    anna = await served.start("anna", "--burst")
    assert await anna.gone() == 0
    assert [(await handle.view()).state for handle in made] == ["COMPLETED"] * 3
