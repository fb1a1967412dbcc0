"""What `interlock simulation start`, `pause`, `resume` and `cancel` do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import typer

from interlock.cli.answers import print_struct
from interlock.cli.connecting import actor, ask
from interlock.cli.simulation_looking import told_status, whole_id
from interlock.cli.simulation_specs import Asked, found
from interlock.cli.simulation_watching import follow
from interlock.remote.interfaces import Reach
from interlock.wire.simulations import SimulationView


def start(
    store: str | None,
    asked: Asked,
    request_id: str | None,
    *,
    wait: bool,
    patience_s: float | None,
    as_json: bool,
) -> int:
    """Start it, say which, and follow it if somebody wants that; the answer is the exit code."""
    spec = found(asked).spec

    async def work(port: Reach) -> int:
        view = await port.here.simulations.create_run(spec, actor=actor(), request_id=request_id)
        if not as_json:
            print(view.run_id, flush=True)
        if wait:
            return await follow(port, view.run_id, patience_s, as_json=as_json)
        if as_json:
            print_struct(view)
        return 0

    try:
        return ask(store, work)
    except KeyboardInterrupt:
        if wait:
            typer.echo("Stopped watching; the simulation goes on.", err=True)
        raise


def act(
    store: str | None,
    verb: str,
    text: str,
    reason: str,
    request_id: str | None,
    *,
    as_json: bool,
    **more: str,
) -> None:
    """Do it, and show how the simulation stands then."""

    async def work(port: Reach) -> SimulationView:
        simulations = port.here.simulations
        run_id = await whole_id(simulations, text)
        await port.recover()  # word that its worker is gone may not have been delivered
        does: Callable[..., Awaitable[SimulationView]] = getattr(simulations, verb)
        return await does(run_id, reason=reason, actor=actor(), request_id=request_id, **more)

    view = ask(store, work)
    if as_json:
        print_struct(view)
    else:
        print(f"{view.run_id}\t{told_status(view)}")
