"""The client without `await` is generated from that of asyncio."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools import sync_client

from interlock import client, client_batches, client_controls, client_resources, sync, sync_resources

SRC = Path(__file__).parents[1] / "src"
CLIENTS = (
    (client.Interlock, sync.Interlock),
    (client_batches.BatchesClient, sync_resources.SyncBatches),
    (client_controls.ApprovalsClient, sync_resources.SyncApprovals),
    (client_controls.DeadLettersClient, sync_resources.DeadLetters),
    (client_controls.LimitsClient, sync_resources.SyncLimits),
    (client_controls.SchedulesClient, sync_resources.Schedules),
    (client_resources.RecordsClient, sync_resources.Records),
    (client_resources.RunsClient, sync_resources.Runs),
    (client_resources.SimulationsClient, sync_resources.Simulations),
)


def coroutines(kind: type) -> Iterator[tuple[str, Any]]:
    found = inspect.getmembers(kind, inspect.iscoroutinefunction)
    return ((name, method) for name, method in found if not name.startswith("_"))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the clients, which a test may change."""
    names = {sync_client.MADE, *(f"{client.module.replace('.', '/')}.py" for client in sync_client.CLIENTS)}
    (tmp_path / "interlock").mkdir()
    for name in names:
        shutil.copy(SRC / name, tmp_path / name)
    return tmp_path


def test_the_generated_clients_are_those_of_the_present_code() -> None:
    assert sync_client.main(["--check"]) == 0


def test_a_client_that_was_changed_makes_the_generated_file_stale(copy: Path) -> None:
    assert not sync_client.stale(copy)
    changed = copy / "interlock" / "client_controls.py"
    changed.write_text(changed.read_text().replace("count: int = 10", "count: int = 20"))
    assert sync_client.stale(copy)


def test_a_name_of_two_types_in_signatures_is_refused(copy: Path) -> None:
    changed = copy / "interlock" / "client_resources.py"
    changed.write_text(changed.read_text().replace("SimulationWork", "Work"))
    with pytest.raises(ValueError, match="Several modules define Work"):
        sync_client.made(copy)


@pytest.mark.parametrize(("waited", "blocking"), CLIENTS)
def test_every_coroutine_has_a_method_with_the_same_parameters(waited: type, blocking: type) -> None:
    for name, method in coroutines(waited):
        given = [(one.name, one.kind) for one in inspect.signature(method).parameters.values()]
        taken = inspect.signature(getattr(blocking, name)).parameters.values()
        assert [(one.name, one.kind) for one in taken] == given, name
