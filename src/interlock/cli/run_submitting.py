"""What `interlock run submit` does: evaluate, store, say which, and follow it if somebody wants that."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import typer

from interlock.cli import printing, project, run_sheets, run_specs, run_watching
from interlock.cli.answers import print_struct
from interlock.cli.connecting import actor, connected
from interlock.systems.runs.plan_validation import check_plan
from interlock.systems.runs.planning.planners import plan_of_text
from interlock.wire.runs import Plan, RunSpec, RunView


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """What to evaluate, and what to do then."""

    asked: run_specs.Asked
    request_id: str | None
    wait: bool
    dry_run: bool
    patience_s: float | None


def submit(store: str | None, ordered: Ordered, *, as_json: bool) -> int:
    """Ask for the run; the answer is the exit code."""
    here = project.load(store)
    spec = run_specs.spec_for(ordered.asked, here.url)
    if ordered.dry_run:
        plan = spec.plan if spec.plan is not None else plan_of_text(spec)
        check_plan(plan, here.settings)
        _show_plan(plan, as_json=as_json)
        return 0
    try:
        return asyncio.run(_submitted(here, spec, ordered, as_json=as_json))
    except KeyboardInterrupt:
        if ordered.wait:
            typer.echo("Stopped watching; whatever was submitted goes on.", err=True)
        raise


async def _submitted(here: project.Project, spec: RunSpec, ordered: Ordered, *, as_json: bool) -> int:
    async with connected(here) as port:
        view: RunView = await port.here.runs.submit(spec, request_id=ordered.request_id, actor=actor())
        if not as_json:
            print(view.id, flush=True)
        if ordered.wait:
            return await run_watching.follow(port, view.id, ordered.patience_s, as_json=as_json)
        if as_json:
            print_struct(view)
        return 0


def _show_plan(plan: Plan, *, as_json: bool) -> None:
    if as_json:
        print_struct(plan)
    else:
        printing.print_sheets(run_sheets.plan_sheets(plan))
