"""A small shop: a project with tasks and a database, and somebody who does the work on request.

The jobs are executed through the port that workers speak through, one word at a time, so that a test
decides what is true when a command is asked.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, TypeVar

import msgspec
from tests.clocks import move_sqlite
from tests.programs import Program
from tests.waiting import PATIENCE_S

from interlock.store.records import Query
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.systems.orchestrator.waiters import waker
from interlock.wire.jobs import JobSpec, JobView
from interlock.wire.runner import (
    CancelAck,
    ClaimRequest,
    Complete,
    Failed,
    Grant,
    Heard,
    Heartbeat,
    LogLine,
    Message,
    Progress,
    Succeeded,
)

T = TypeVar("T")
RunCli = Callable[..., CompletedProcess[str]]

SCRIPT = Path(sys.executable).with_name("interlock")
RUNNER = "till#1"
TASKS = """
print("a module that talks")
from interlock.worker.tasks import task

@task
def add(x: int, y: int = 1) -> int:
    return x + y

@task(queue="mail", retries=2)
def send(address: str) -> None:
    print("sent to", address)

@task
def fail() -> None:
    raise ValueError("out of stock")
"""


@dataclass
class Shop:
    """The project in a folder, its database, and its only runner."""

    folder: Path
    grants: dict[str, Grant] = field(default_factory=dict)
    sequence: int = 0

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder / 'interlock.db'}"

    def do(self, work: Callable[[EmbeddedOrchestrator], Awaitable[T]]) -> T:
        """Something with the database, on a connection of its own."""

        async def run() -> T:
            port = EmbeddedOrchestrator(self.url)
            await port.connect()
            try:
                return await work(port)
            finally:
                await port.disconnect()

        return asyncio.run(run())

    def submit(self, task: str = "shop_tasks.add", **facts: Any) -> str:
        facts.setdefault("input", msgspec.Raw(b'{"x":1}'))
        return self.do(lambda port: port.services.jobs.submit(JobSpec(task=task, **facts)))

    def submit_many(self, number: int, **facts: Any) -> list[str]:
        spec = JobSpec(task="shop_tasks.add", **facts)
        return self.do(lambda port: port.services.jobs.submit_many([spec] * number))

    def job(self, job_id: str) -> JobView:
        return self.do(lambda port: port.services.jobs.get(job_id))

    def next_job(self) -> str:
        """The first job in an empty database, once it is there."""

        async def work(port: EmbeddedOrchestrator) -> str:
            store, news = port.services.store, asyncio.Event()
            stop = store.subscribe(waker(news))
            try:
                while not (found := (await store.find(Query(kind="job"))).records):
                    await asyncio.wait_for(news.wait(), PATIENCE_S)
                    news.clear()
            finally:
                stop()
            return found[0].id

        return self.do(work)

    def count(self) -> int:
        """How many jobs there are at all."""
        if not (self.folder / "interlock.db").exists():
            return 0
        status = self.do(lambda port: port.services.store.status())
        return sum(status.records.get("job", {}).values())

    def take(self, *job_ids: str) -> None:
        """Claim everything that is ready; these must be among it."""

        async def work(port: EmbeddedOrchestrator) -> list[Grant]:
            return await port.claim(
                ClaimRequest(
                    runner_id=RUNNER, queues=("default", "ci", "mail"), labels=("big", "gpu"), limit=100
                )
            )

        self.grants |= {grant.job_id: grant for grant in self.do(work)}
        assert set(job_ids) <= self.grants.keys()

    def later(self, seconds: float) -> None:
        """Let time pass, by the clock of the database."""

        async def work(port: EmbeddedOrchestrator) -> None:
            move_sqlite(port.services.store, seconds)
            await port.services.jobs.submit(JobSpec(task="shop_tasks.add", queue="elsewhere"))

        self.do(work)

    def say(self, job_id: str, message: type[Message], **facts: Any) -> None:
        """Say something about a job under its lease."""
        self.sequence += 1
        runner_message = message(
            token=self.grants[job_id].token, runner_id=RUNNER, sequence=self.sequence, **facts
        )
        (answer,) = self.do(lambda port: port.report([runner_message]))
        assert isinstance(answer, Heard), answer

    def report_progress(self, job_id: str, done: float, total: float, message: str = "") -> None:
        self.say(job_id, Heartbeat, progress=Progress(done=done, total=total, message=message))

    def write(self, job_id: str, *lines: str) -> None:
        now = self.do(lambda port: port.now())
        self.say(job_id, Heartbeat, log=tuple(LogLine(now, "info", line) for line in lines))

    def complete(self, job_id: str, result: object = None) -> None:
        self.say(job_id, Complete, outcome=Succeeded(msgspec.Raw(json.dumps(result).encode())))

    def fail(self, job_id: str, error: str = "ValueError: out of stock") -> None:
        self.say(job_id, Complete, outcome=Failed(error=error, exception="ValueError", failure_class="user"))

    def acknowledge_cancel(self, job_id: str) -> None:
        self.say(job_id, CancelAck)

    def completed(self, **facts: Any) -> str:
        """A job that is done."""
        job_id = self.submit(**facts)
        self.take(job_id)
        self.complete(job_id, 2)
        return job_id

    def failed(self, **facts: Any) -> str:
        job_id = self.submit(**facts)
        self.take(job_id)
        self.fail(job_id)
        return job_id

    def canceled(self, **facts: Any) -> str:
        job_id = self.submit(**facts)
        self.do(lambda port: port.services.jobs.cancel(job_id))
        return job_id

    def start(self, *words: str, env: Mapping[str, str] | None = None, **how: Any) -> Program:
        """The program as a process of its own, to be watched while it runs."""
        environment = {**os.environ, "INTERLOCK_URL": self.url, **(env or {})}
        return Program(*words, folder=self.folder, environment=environment, **how)
