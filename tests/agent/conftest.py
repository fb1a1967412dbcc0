"""Real agents, each a process of its own, and who speaks to them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from grpc import aio
from tests.agent.controller import Controller
from tests.waiting import PATIENCE_S

from interlock.lifecycles.durations import Durations
from interlock.testing.agent_process import AgentProcess, running_agent

PATIENT = Durations(abort_warning_s=25.0, abort_kill_s=29.0)
"""What is asked to stop has stopped before it is made to, also on a machine that stands still for seconds."""
HASTY = Durations(abort_warning_s=0.4, abort_kill_s=1.2)
"""Only for workloads that do not stop when they are asked to."""
OFTEN = ("--sample-every", "0.1")
LET_END = ("--drain", "30")
CUT_OFF = ("--drain", "0.3")
WORKLOADS = Path(__file__).with_name("workloads")

Connect: TypeAlias = Callable[..., Controller]


@pytest.fixture(scope="session")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    """One for all tests: it is idle after each of them."""
    with running_agent(tmp_path_factory.mktemp("agent"), *OFTEN, *LET_END, durations=PATIENT) as agent:
        yield agent


@pytest.fixture(scope="session")
def hasty_agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    """The same, which soon makes stop what does not stop by itself."""
    with running_agent(tmp_path_factory.mktemp("hasty"), *OFTEN, *CUT_OFF, durations=HASTY) as agent:
        yield agent


@pytest.fixture
def own_agent(tmp_path: Path) -> Iterator[AgentProcess]:
    """One that a test may hurt."""
    with running_agent(tmp_path / "agent", *OFTEN, durations=HASTY) as agent:
        yield agent
        print(agent.words())  # shown only where a test has failed


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    opened: list[Controller] = []

    def connect(
        address: str, options: tuple[tuple[str, int], ...] = (), token: str | None = None
    ) -> Controller:
        own = ("grpc.use_local_subchannel_pool", 1)
        metadata = () if token is None else (("authorization", f"Bearer {token}"),)
        controller = Controller(aio.insecure_channel(address, options=[own, *options]), metadata)
        opened.append(controller)
        return controller

    yield connect
    for controller in opened:
        await controller.close()


@pytest.fixture
async def controller(agent: AgentProcess, connect: Connect) -> AsyncIterator[Controller]:
    controller = connect(agent.address)
    yield controller
    print(agent.words())
    await leave(controller)


@pytest.fixture
async def hasty(hasty_agent: AgentProcess, connect: Connect) -> AsyncIterator[Controller]:
    """Speaks to the hasty agent."""
    controller = connect(hasty_agent.address)
    yield controller
    print(hasty_agent.words())
    await leave(controller)


async def leave(controller: Controller) -> None:
    """Hang up; its agent is idle afterwards."""
    controller.hang_up()
    assert (await controller.status(wait_idle_s=PATIENCE_S)).state == "IDLE"


def python(name: str, **arguments: Any) -> dict[str, Any]:
    """The spec of a function of `workloads/odd.py`."""
    return {"target": f"odd:{name}", "arguments": arguments, "path": [str(WORKLOADS)]}


def gone(pid: int) -> bool:
    """Return whether it has ended, also if its exit code was never read; it may go during the look."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except (FileNotFoundError, ProcessLookupError):
        return True
