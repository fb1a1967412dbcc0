"""`Interlock.runs`: the door to runs for programs.

run = await il.runs.submit(ci, pythons="3.13")            # a flow; its inputs by name
run = await il.runs.submit(Path(".interlock/ci.yml"))     # a workflow file
run = await il.runs.submit(Plan(jobs=...), workflow="ci") # a plan
view = await run.wait(timeout_s=600)
print(view.outcome, view.tally)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from interlock.errors import CannotLoad, InvalidArguments, ResultNotReady, StoreUnavailable
from interlock.remote.interfaces import RunsApi, Services, Which
from interlock.store.records import Entry
from interlock.systems.orchestrator.waiters import waker
from interlock.systems.runs.planning.flow import FlowFunction
from interlock.systems.runs.planning.planners import spec_of_file
from interlock.systems.runs.search import found_runs
from interlock.wire.run_filters import read_run_filter
from interlock.wire.runs import Plan, RunExplanation, RunJobView, RunSpec, RunView, Source

Evaluation: TypeAlias = "FlowFunction | Plan | RunSpec | Path"
"""A flow and its inputs, a finished plan or spec, or a workflow file and its inputs."""

LOOK_EVERY_S = 1.0
"""A call may be lost; then this is the price."""
LEAST_PAUSE_S = 0.05


class RunHandle:
    """One run that was asked for."""

    __slots__ = ("_runs", "id")

    def __init__(self, runs: RunsClient, run_id: str) -> None:
        self._runs = runs
        self.id = run_id

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    async def wait(self, *, timeout_s: float | None = None) -> RunView:
        """The run once its outcome is decided, whatever it is."""
        return await self._runs.wait(self.id, timeout_s=timeout_s)

    async def view(self) -> RunView:
        """The run as it stands, with its jobs."""
        return await self._runs.view(self.id)

    async def cancel(self, *, reason: str = "") -> RunView:
        """Ask it to stop."""
        return await self._runs.cancel(self.id, reason=reason)


class RunsClient:
    """The runs of a store, or of a server before one."""

    def __init__(self, here: Callable[[], Services], recover: Callable[[], Any], actor: str) -> None:
        self._here = here
        self._recover = recover
        self._actor = actor

    @property
    def _runs(self) -> RunsApi:
        return self._here().runs

    async def submit(
        self,
        work: Evaluation,
        /,
        *,
        source: Source | None = None,
        workflow: str = "",
        request_id: str | None = None,
        **inputs: Any,
    ) -> RunHandle:
        """Ask for a run. Flows and files are evaluated here, so what is wrong with them is raised here."""
        spec = run_spec(work, source, workflow, inputs)
        made = await self._runs.submit(spec, request_id=request_id, actor=self._actor)
        return RunHandle(self, made.id)

    async def wait(self, run_id: str, *, timeout_s: float | None = None) -> RunView:
        """The run once its outcome is decided. Whoever waits also looks after deadlines."""
        called, swept_at = asyncio.Event(), float("-inf")
        loop = asyncio.get_running_loop()
        stop = self._here().store.subscribe(waker(called))
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    called.clear()
                    with suppress(StoreUnavailable):  # it may come back; who waits has a timeout
                        if (await self._runs.outline(run_id)).outcome is not None:
                            return await self._runs.view(run_id)
                        if loop.time() - swept_at >= LOOK_EVERY_S:
                            await self._recover()
                            swept_at = loop.time()
                    await _called_or_time(called)
        except TimeoutError:
            raise ResultNotReady(
                f"The run {run_id} has not ended within {timeout_s:g} s.",
                todo=f"See what it waits for with `interlock run explain {run_id}`.",
                facts={"run_id": run_id, "timeout_s": timeout_s},
            ) from None
        finally:
            stop()

    async def view(self, run_id: str) -> RunView:
        """The run as it stands, with its jobs."""
        return await self._runs.view(run_id)

    async def find(self, text: str = "", *, limit: int = 100, cursor: str = "") -> tuple[list[RunView], str]:
        """Runs that a filter means (`outcome:failed workflow:ci`), newest first, and where more begin."""
        now = await self._here().jobs.now()
        found = await found_runs(self._runs, read_run_filter(text), now, limit=limit, cursor=cursor)
        return found.views, found.cursor

    async def jobs(self, run_id: str, *, first: int = 0, limit: int = 500) -> list[RunJobView]:
        """Jobs of a run in the order of its plan."""
        return await self._runs.jobs(run_id, first=first, limit=limit)

    async def cancel(self, run_id: str, *, reason: str = "", request_id: str | None = None) -> RunView:
        """Ask a run to stop; the view says how far that is."""
        return await self._runs.cancel(run_id, reason=reason, request_id=request_id, actor=self._actor)

    async def approve(self, run_id: str, *, comment: str = "", request_id: str | None = None) -> RunView:
        """Let a run go on that waits for an approval, for the commit that it is about."""
        return await self._runs.approve(run_id, comment=comment, request_id=request_id, actor=self._actor)

    async def decline(self, run_id: str, *, reason: str = "", request_id: str | None = None) -> RunView:
        """Cancel a run that waits for an approval."""
        return await self._runs.decline(run_id, reason=reason, request_id=request_id, actor=self._actor)

    async def rerun(
        self, run_id: str, which: Which = "all", *, job: str = "", request_id: str | None = None
    ) -> RunHandle:
        """Do a run that has ended again: `all` of it, what `failed`, or `from` a job on."""
        made = await self._runs.rerun(run_id, which, job=job, request_id=request_id, actor=self._actor)
        return RunHandle(self, made.id)

    async def explain(self, run_id: str) -> RunExplanation:
        """What a run waits for, or how it ended."""
        return await self._runs.explain(run_id)

    async def history(self, run_id: str) -> list[Entry]:
        """Everything that has happened to a run, oldest first."""
        return await self._runs.history(run_id)


def run_spec(work: Evaluation, source: Source | None, workflow: str, inputs: dict[str, Any]) -> RunSpec:
    """What is asked for, evaluated as far as it can be without a server."""
    about = source or Source()
    match work:
        case FlowFunction():
            spec = work.spec(about, **inputs)
        case Path():
            spec = spec_of_file(_text_of(work), work.name, about, {k: str(v) for k, v in inputs.items()})
        case Plan() if not inputs:
            spec = RunSpec(plan=work, source=about)
        case RunSpec() if not inputs and source is None:
            spec = work
        case _:
            raise InvalidArguments(
                "Inputs are for flows and workflow files; a plan has them already.",
                todo="Give a flow, a Path to a workflow file, a Plan, or a RunSpec alone.",
                facts={"inputs": sorted(inputs)},
            )
    return msgspec.structs.replace(spec, workflow=workflow) if workflow else spec


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CannotLoad(
            f"The workflow file {path} cannot be read: {error}.",
            todo="Give the path of a workflow file.",
            facts={"file": str(path)},
        ) from None


async def _called_or_time(called: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(LOOK_EVERY_S):
            await called.wait()
            await asyncio.sleep(LEAST_PAUSE_S)
