"""`interlock queue pause` and `queue resume`: what is printed, and what a job says meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.shop import RunCli, Shop
from tests.server.running import running

from interlock.cli import project
from interlock.cli.nouns.worker_start import Depth


def test_a_queue_is_paused_listed_explained_and_resumed(cli: RunCli, shop: Shop) -> None:
    job_id = shop.submit(queue="mail")
    answer = cli("queue", "pause", "mail", "--reason", "the mail server is away")
    assert (answer.returncode, answer.stdout) == (
        0,
        "The queue mail is paused: its jobs wait, and running jobs continue.\n",
    )
    (listed,) = json.loads(cli("queue", "list", "--json").stdout)
    assert (listed["state"], listed["reason"], listed["pending"]) == ("paused", "the mail server is away", 1)
    assert cli("queue", "list").stdout.split("\t")[-1].strip() == "paused"
    explanation = cli("job", "explain", job_id).stdout
    assert "the mail server is away" in explanation
    assert "→ interlock queue resume mail" in explanation
    assert cli("queue", "resume", "mail").stdout == "The queue mail is active: its jobs are started.\n"
    assert json.loads(cli("queue", "resume", "mail", "--json").stdout)["state"] == "open"


@pytest.mark.usefixtures("shop")
def test_queue_pause_refuses_a_name_of_65_characters_and_suggests_queue_list(cli: RunCli) -> None:
    answer = cli("queue", "pause", "x" * 65)
    assert answer.returncode == 2
    assert "1 to 64 printable characters" in answer.stderr
    assert "interlock queue list" in answer.stderr


@pytest.mark.parametrize("over_http", [False, True])
async def test_the_pool_supervisor_does_not_count_waiting_jobs_of_a_paused_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, over_http: bool
) -> None:
    monkeypatch.chdir(tmp_path)  # no project file is found from here
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with running(url) as server:
        depth = Depth(project.load(server.url if over_http else url), ("mail", "web"))
        await server.hold(await server.submit(queue="mail"), "mail")
        for queue in ("mail", "mail", "web"):
            await server.submit(queue=queue)
        assert await depth.look() == 4
        await server.parts.runtime.queues.pause("mail")
        server.parts.queue_board.forget()
        assert await depth.look() == 2, "what waits in web, and what runs in mail and keeps its slot"
        await server.parts.runtime.queues.resume("mail")
        server.parts.queue_board.forget()
        assert await depth.look() == 4
        await depth.close()
