"""What is known of the fleet of a world while it is played: drives, workloads that live, and troubles."""

from __future__ import annotations

from collections.abc import Mapping

from interlock.verify.worlds.stage import Process


class Tour:
    """One drive of one controller, from the first question to the result."""

    def __init__(
        self,
        controller: Process,
        job_id: str,
        workloads: Mapping[str, str],
        *,
        begun_s: float,
        within_s: float,
    ) -> None:
        self.controller = controller
        self.job_id = job_id
        self.workloads = workloads
        """What the workload is called on each agent, by the agent's place."""
        self.begun_s = begun_s
        self.within_s = within_s
        """How long it may take, by the controller's clock."""
        self.ended_s: float | None = None

    @property
    def over(self) -> bool:
        """Whether it has come to a result or a refusal, or has died with its controller."""
        return self.ended_s is not None


class Life:
    """One workload on one agent while something of it lives, and what is known of it afterwards."""

    def __init__(
        self, process: Process, workload_id: str, end: str, *, up_s: float, prepare_s: float
    ) -> None:
        self.process = process
        self.workload_id = workload_id
        self.end = end
        """How it ends, by the dice."""
        self.up_ns = round(up_s * 1e9)
        """How long its process takes until it can begin."""
        self.prepare_ns = round(prepare_s * 1e9)
        """So long before the start its agent starts the process."""
        self.survives_s = 0.0
        """So long it can live although it is killed."""
        self.began_s: float | None = None
        self.prompt = False
        """It has begun at the very instant, and nothing has kept it from that."""
        self.operations = 0
        """What it has told its agent of."""
        self.over = False
        self.well = False
        self.orphaned = False
        """Its controller has died while it ran."""


class Troubles:
    """When something went wrong last between two places, as far as it was noticed by their messages."""

    def __init__(self) -> None:
        self._last: dict[frozenset[str], float] = {}

    def note(self, one: str, other: str, at_s: float) -> None:
        """Something did not arrive, or not in time."""
        self._last[frozenset((one, other))] = at_s

    def since(self, one: str, other: str, at_s: float) -> bool:
        """Whether there was any since then."""
        return self._last.get(frozenset((one, other)), float("-inf")) >= at_s


def job_of(workload_id: str) -> str:
    """The job that drives it, of whose story it is a part; any other name is that of its own story."""
    return workload_id.rsplit("_", 2)[0] if workload_id.count("_") > 2 else workload_id
