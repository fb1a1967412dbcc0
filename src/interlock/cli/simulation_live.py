"""A bar on a terminal: how far a simulation is, how fast it goes, and when it will be done."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn, Progress, TaskID, TextColumn

from interlock.cli.simulation_looking import steps_of, told_status
from interlock.cli.tables import console_here
from interlock.wire.harmless import harmless

if TYPE_CHECKING:
    from interlock.cli.simulation_watching import Pace
    from interlock.wire.simulations import SimulationView


class LiveBar:
    """One line that changes, and stays as it was last."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[steps]}  {task.fields[pace]}  {task.fields[said]}"),
            console=console_here(),
        )
        self._bar: TaskID | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, view: SimulationView, pace: Pace) -> None:
        """How it is now."""
        dangers = f"{view.danger_count} dangers" if view.danger_count else ""
        said = harmless(view.error or view.trouble or dangers)
        what = harmless(f"{view.run_id} {told_status(view)}")
        if self._bar is None:
            self._bar = self._progress.add_task(what, total=view.total_steps, steps="", pace="", said="")
        self._progress.update(
            self._bar,
            description=what,
            total=view.total_steps,
            completed=view.current_step,
            steps=steps_of(view),
            pace=pace.told(view),
            said=said,
        )
