"""Submitters, and a runner that reports too late.

A submitter sends a stream of jobs, each with a unique intent, and retries until acknowledged; over HTTP some
responses are lost. A naive one uses HTTP directly, without request ids, and repeats requests as new ones. A
late runner has no clock: it claims a job, stays silent until another runner has it, and then reports a
success that must be refused. It forgets its first job forever: only a sweep of deadlines can recover that.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
from collections.abc import Callable

import httpx2
import msgspec

from interlock.client import Interlock
from interlock.errors import StoreUnavailable
from interlock.lifecycles.job import JOB
from interlock.store.contract import Store
from interlock.store.records import Key
from interlock.systems.orchestrator.body import decode_body
from interlock.testing.proxy import Wires
from interlock.wire.jobs import JobSpec
from interlock.wire.runner import ClaimRequest, Complete, Grant, Heard, Succeeded
from interlock.worker.http import HttpOrchestrator
from interlock_verification.chaos.system import tasks
from interlock_verification.chaos.system.fleet import DURATIONS, QUEUES, SLOW

PAUSE_S = 0.05
BETWEEN_S = 0.2
QUICK_S, SLOW_S = (0.0, 0.1), (1.0, 2.5)
"""Duration of most tasks, and of the slow ones."""
SHARES = (60, 30, 10)
"""Weights of the queues: default, slow, and those for hosts with a skewed clock."""
MOST_EATEN = 0.1
PATIENCE_S = 30.0
"""Timeout of a submitter, before it repeats the request with the same intent."""
LATEST_S = 2 * DURATIONS.lease_ttl_s
TOO_LATE = msgspec.Raw(b'"too late"')


class Submitter:
    """One client with a stream of jobs; `acknowledged` maps each intent to its job."""

    def __init__(
        self,
        name: str,
        address: str,
        seed: int,
        *,
        naive: bool = False,
        wires: Wires | None = None,
    ) -> None:
        self.name = name
        self.acknowledged: dict[str, str] = {}
        self.asked_again = 0
        self._il = Interlock(address, actor=name)
        self._dice = random.Random(f"{seed} {name}")
        self._naive = naive
        self._address = address
        self._wires = wires

    async def keep_on(self, may: Callable[[], bool], until: asyncio.Event) -> None:
        """Submit jobs while allowed, until stopped."""
        try:
            while not until.is_set():
                if may():
                    await self._submit(f"{self.name}-{len(self.acknowledged):06}")
                await asyncio.sleep(BETWEEN_S * self._dice.random())
        finally:
            await self._il.close()

    async def _submit(self, intent: str) -> None:
        if self._wires is not None and self._dice.random() < MOST_EATEN:
            self._wires.losses[intent.encode()] = "reply"
        spec = self._spec(intent)
        while True:
            try:
                self.acknowledged[intent] = await self._ask(spec, intent)
            except (StoreUnavailable, TimeoutError, httpx2.RequestError):
                self.asked_again += 1
                await asyncio.sleep(PAUSE_S)
            else:
                return

    def _spec(self, intent: str) -> JobSpec:
        """Return a job spec; a late runner may claim the slow ones."""
        queue = self._dice.choices(QUEUES, SHARES)[0]
        for_s = self._dice.uniform(*(SLOW_S if queue == SLOW else QUICK_S))
        return self._dice.choice(tasks.KINDS).options(queue=queue).spec(intent=intent, for_s=for_s)

    async def _ask(self, spec: JobSpec, intent: str) -> str:
        async with asyncio.timeout(PATIENCE_S):
            if self._naive and self._wires is not None:
                return await self._ask_naively(spec)
            await self._il.open()
            return (await self._il.submit(spec, request_id=None if self._naive else intent)).id

    async def _ask_naively(self, spec: JobSpec) -> str:
        async with httpx2.AsyncClient() as http:
            response = await http.post(
                f"{self._address}/api/jobs",
                content=msgspec.json.encode(spec),
                headers={"Content-Type": "application/json"},
            )
        if not response.is_success:
            raise StoreUnavailable(f"The server answered {response.status_code}.")
        made: str = msgspec.json.decode(response.content)["id"]
        return made


class Late(msgspec.Struct, frozen=True):
    """A success that was reported too late."""

    job_id: str
    runner_id: str
    believed: bool


class LateRunner:
    """A runner that reports after its job was given to another one, again and again."""

    def __init__(self, address: str, store: Store) -> None:
        self.reports: list[Late] = []
        self.taken = 0
        """Number of claimed jobs: the first is forgotten, the others are reported late."""
        self._store = store
        self._port = HttpOrchestrator(address, names=lambda: secrets.token_hex(8), wait_s=1.0)

    async def keep_on(self, until: asyncio.Event) -> None:
        """Claim a job, let its lease expire, report it; until stopped."""
        number = 0
        try:
            while not until.is_set():
                number += 1
                await self._be_late(f"late-runner#{number}")
        finally:
            await self._port.disconnect()

    async def _be_late(self, runner_id: str) -> None:
        try:
            await self._port.connect()
            grants = await self._port.claim(ClaimRequest(runner_id=runner_id, queues=(SLOW,)))
        except StoreUnavailable:
            await asyncio.sleep(PAUSE_S)
            return
        if not grants:
            await asyncio.sleep(PAUSE_S)
            return
        self.taken += 1
        if self.taken > 1:
            await self._in_other_hands(grants[0].job_id, runner_id)
            await self._report(grants[0], runner_id)

    async def _in_other_hands(self, job_id: str, runner_id: str) -> None:
        """Wait until another runner has the job, within a limit."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LATEST_S):
                while await self._holder(job_id) in ("", runner_id):
                    await asyncio.sleep(PAUSE_S)

    async def _holder(self, job_id: str) -> str:
        """Return the latest holder of the job; empty if unknown."""
        try:
            [record] = await self._store.load([Key(JOB.name, job_id)])
        except StoreUnavailable:
            return ""
        attempts = decode_body(record.body).attempts if record else []
        leases = [one.lease for one in attempts if one.lease is not None]
        return leases[-1].data.runner_id if leases else ""

    async def _report(self, grant: Grant, runner_id: str) -> None:
        message = Complete(token=grant.token, runner_id=runner_id, sequence=1, outcome=Succeeded(TOO_LATE))
        while True:
            try:
                [answer] = await self._port.report([message])
            except StoreUnavailable:
                await asyncio.sleep(PAUSE_S)
            else:
                self.reports.append(Late(grant.job_id, runner_id, isinstance(answer, Heard)))
                return
