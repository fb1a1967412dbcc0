"""Real agents, each a process of its own, with durations of tenths of seconds; and who speaks to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from grpc import aio
from tests.agent.controller import PATIENCE_S, Controller

from interlock.lifecycles.durations import Durations
from interlock.testing.agent_process import AgentProcess, running_agent

QUICK = Durations(abort_warning_s=0.4, abort_kill_s=1.2, start_wait_s=5.0)
OFTEN = ("--sample-every", "0.1", "--drain", "0.3")
WORKLOADS = Path(__file__).with_name("workloads")

Connect: TypeAlias = Callable[..., Controller]


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    """One for all tests of a file: it is idle after each of them."""
    with running_agent(tmp_path_factory.mktemp("agent"), *OFTEN, durations=QUICK) as agent:
        yield agent


@pytest.fixture
def own_agent(tmp_path: Path) -> Iterator[AgentProcess]:
    """One that a test may hurt."""
    with running_agent(tmp_path / "agent", *OFTEN, durations=QUICK) as agent:
        yield agent


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
    controller.hang_up()
    assert (await controller.status(wait_idle_s=PATIENCE_S)).state == "IDLE"


def python(name: str, **arguments: Any) -> dict[str, Any]:
    """The spec of a function of `workloads/odd.py`."""
    return {"target": f"odd:{name}", "arguments": arguments, "path": [str(WORKLOADS)]}


def gone(pid: int) -> bool:
    """Whether it has ended, also if nobody has asked for its exit code; it may go while it is looked at."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except (FileNotFoundError, ProcessLookupError):
        return True


async def until(holds: Callable[[], object | Awaitable[object]], what: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.01)
    assert holds(), what
