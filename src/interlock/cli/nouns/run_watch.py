"""Command `run watch`, and `run submit --wait`: follow a run to its outcome."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

from interlock.cli import watch
from interlock.cli.nouns.run_views import RunChange, whole_run_id
from interlock.cli.output import iso
from interlock.cli.watch import CANCELED, COMPLETED, FAILED, NOT_IN_TIME
from interlock.lifecycles.run import RunState
from interlock.remote.service_connection import ServiceConnection
from interlock.wire.runs import RunView

_CODES = {
    RunState.SUCCESS: COMPLETED,
    RunState.FAILED: FAILED,
    RunState.TIMEOUT: FAILED,
    RunState.CANCELED: CANCELED,
}


def watch_run(store: str | None, text: str, timeout_s: float | None, *, as_json: bool) -> int:
    """Follow a run to its outcome; return the exit code."""

    async def work(port: ServiceConnection) -> int:
        return await follow(port, await whole_run_id(port, text), timeout_s, as_json=as_json)

    return watch.until_interrupted(store, work, "Stopped watching; the run continues.")


async def follow(port: ServiceConnection, run_id: str, timeout_s: float | None, *, as_json: bool) -> int:
    """Show the changes of a run until it is decided; return the exit code."""
    last: RunView | None = None
    late = f"Not ended in time: {run_id}. See `interlock run explain {run_id}`."
    with _screen(port, as_json=as_json) as screen:

        async def show(view: RunView) -> None:
            nonlocal last
            await screen.show(view, list(changes_between(last, view)))
            last = view

        views = watch.looks(port, lambda: port.services.runs.view(run_id), _is_over)
        return await watch.follow_one(views, show, exit_code, timeout_s, late)


def exit_code(view: RunView) -> int:
    """Return the exit code for the outcome of a run."""
    return NOT_IN_TIME if view.outcome is None else _CODES.get(RunState(view.outcome), FAILED)


def _is_over(view: RunView) -> bool:
    """Return whether a run is decided, and the jobs it stops have stopped."""
    return view.outcome is not None and not any(view.tally.get(s) for s in ("RUNNING", "STOPPING"))


def changes_between(before: RunView | None, after: RunView) -> Iterator[RunChange]:
    """Yield the changes of state.

    Without a previous view, these are those of all jobs that have started.
    """
    known = {job.name: job.state for job in before.jobs} if before is not None else {}
    for job in after.jobs:
        was = known.get(job.name, "" if before is None else "WAITING")
        if job.state != was and not (before is None and job.state == "WAITING"):
            at = job.completed_at or job.started_at or after.updated_at
            failure = job.failure.error if job.failure is not None else ""
            yield RunChange(at, job.name, was, job.state, failure or job.reason)
    if before is None or before.state != after.state:
        reason = after.error or after.reason
        yield RunChange(after.updated_at, "", before.state if before else "", after.state, reason)


def _screen(
    port: ServiceConnection, *, as_json: bool
) -> AbstractContextManager[watch.Screen[[RunView, list[RunChange]]]]:
    def live() -> AbstractContextManager[watch.Screen[[RunView, list[RunChange]]]]:
        from interlock.cli.live import LiveGraph  # a pipe needs no rich

        return LiveGraph(port.now, shutil.get_terminal_size().columns)

    return watch.screen(as_json=as_json, structs=_structs, rows=_rows, live=live)


def _rows(view: RunView, changes: list[RunChange]) -> Iterator[Sequence[str]]:
    for change in changes:
        yield iso(change.at), change.what or view.id, change.before, change.after, change.says


def _structs(view: RunView, changes: list[RunChange]) -> Iterator[object]:
    for change in changes:
        line = {"at": change.at, "job": change.what, "from": change.before, "to": change.after}
        yield {"change": {**line, "says": change.says}}
    if _is_over(view):
        yield {"run": view}
