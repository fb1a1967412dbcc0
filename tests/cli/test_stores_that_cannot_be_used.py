"""A store that is away, or not ours: a sentence and code 2, and whoever watches does not give up."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing

import pytest
from tests.cli.shop import RunCli, Shop

from interlock.cli import watch
from interlock.cli.connection import Embedded
from interlock.cli.journal import JournalStep, steps_in
from interlock.cli.watch import JobFollower
from interlock.errors import StoreUnavailable
from interlock.store.memory import MemoryStore
from interlock.systems.catalogue import CATALOGUE
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.testing.faults import Fault, FaultyStore, Plan
from interlock.wire.jobs import JobSpec
from interlock.wire.runner import ClaimRequest, Complete, Succeeded

READS = ("load", "feed", "latest", "history", "due", "now")
COMMANDS = (
    ["submit", "anything", "--unchecked"],
    ["job", "list"],
    ["job", "show", "j_0123456789ab"],
    ["job", "wait", "j_0123456789ab"],
    ["job", "cancel", "j_0123456789ab"],
    ["queue", "list"],
    ["db", "status"],
)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_store_of_a_newer_program_is_left_alone(cli: RunCli, shop: Shop, words: list[str]) -> None:
    shop.submit()
    path = shop.folder / "interlock.db"
    with closing(sqlite3.connect(path)) as shell, shell:
        shell.execute("INSERT INTO interlock_schema VALUES (99, 'of tomorrow', 0)")
    answer = cli(*words)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "99" in answer.stderr
    assert "Traceback" not in answer.stderr
    with closing(sqlite3.connect(path)) as shell:
        assert shell.execute("SELECT count(*) FROM records WHERE kind = 'job'").fetchone() == (1,)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_an_unavailable_store_is_reported_without_its_password(
    cli: RunCli, shop: Shop, words: list[str]
) -> None:
    answer = cli(*words, "--store", "postgresql://me:secret@127.0.0.1:1/shop", "--json")
    error = json.loads(answer.stdout)["error"]
    assert (answer.returncode, error["code"]) == (2, "store_unavailable")
    assert "secret" not in answer.stdout + answer.stderr


def test_a_file_that_is_no_database_is_reported(cli: RunCli, shop: Shop) -> None:
    (shop.folder / "interlock.db").write_text("not a database at all, but long enough to be read as one" * 20)
    answer = cli("job", "list")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "Traceback" not in answer.stderr


async def test_a_job_follower_receives_each_transition_exactly_once_despite_store_outages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "POLL_S", 0.001)
    memory = MemoryStore(CATALOGUE)
    worker = EmbeddedOrchestrator("memory:", store=lambda: memory)
    await worker.connect()
    jobs = worker.services.jobs
    ids = await jobs.submit_many([JobSpec(task="shop.send")] * 5)
    away = Plan(seed=3, faults=(Fault("request lost", of=READS, chance=0.4),))
    watcher = Embedded("memory:", store=lambda: FaultyStore(memory, away))
    await watcher.connect()
    troubles: list[StoreUnavailable] = []
    steps: list[JournalStep] = []
    notified = asyncio.Event()

    async def follow() -> None:
        async for news in JobFollower(watcher, ids, on_outage=troubles.append).news():
            steps.extend(news.steps)
            notified.set()

    followed = asyncio.create_task(follow())
    for _ in ids:
        (grant,) = await worker.claim(ClaimRequest(runner_id="till#1"))
        done = Complete(token=grant.token, runner_id="till#1", sequence=1, outcome=Succeeded())
        await worker.report([done])
        while (grant.job_id, "COMPLETED") not in {(step.job_id, step.target) for step in steps}:
            notified.clear()
            await asyncio.wait_for(notified.wait(), 60)
    await asyncio.wait_for(followed, 60)

    assert troubles
    for job_id in ids:
        shown = steps_in(await jobs.history(job_id))
        assert [step for step in steps if step.job_id == job_id] == [step for step in shown if step.moves]
    await watcher.disconnect()
    await worker.disconnect()
