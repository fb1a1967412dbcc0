"""`interlock worker list|show|history|pause|resume|terminate|drain`, from a store and from a server."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.cli.shop import RunCli, Shop

from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.wire.workers import WorkerBeat, WorkerSpec


def registered(shop: Shop, *names: str, **spec: object) -> list[str]:
    """Workers that have had a task; their ids."""

    async def register() -> list[str]:
        port = EmbeddedOrchestrator(shop.url)
        await port.connect()
        try:
            ids = [await port.register(WorkerSpec(name=name, incarnation="1", **spec)) for name in names]  # type: ignore[arg-type]
            for worker_id in ids:
                await port.beat(worker_id, WorkerBeat(begun=True, active=1))
        finally:
            await port.disconnect()
        return ids

    return asyncio.run(register())


def test_worker_list_shows_live_workers_and_with_all_also_terminated_ones(cli: RunCli, shop: Shop) -> None:
    first, second = registered(shop, "anna", "berta", host="attic", pid=7, labels=("gpu",))
    assert cli("worker", "terminate", "anna").returncode == 0
    shown = cli("worker", "list").stdout
    assert (second in shown, first in shown) == (True, False)
    assert "1/1\tattic\t7\tgpu" in shown
    assert first in cli("worker", "list", "--all").stdout
    assert (
        json.loads(cli("worker", "list", "name:anna", "--all", "--json").stdout)[0]["state"] == "TERMINATED"
    )
    nobody = cli("worker", "list", "name:carla")
    assert (nobody.returncode, nobody.stderr) == (0, "No live worker matches; see --all.\n")


def test_a_worker_is_shown_by_its_name_or_its_id_with_all_that_happened_to_it(
    cli: RunCli, shop: Shop
) -> None:
    (worker_id,) = registered(shop, "anna", tasks=("shop.send", "shop.sort"))
    by_name, by_id = cli("worker", "show", "anna", "--json"), cli("worker", "show", worker_id, "--json")
    assert json.loads(by_name.stdout) == json.loads(by_id.stdout)
    assert json.loads(by_id.stdout)["tasks"] == ["shop.send", "shop.sort"]
    assert "tasks\tshop.send, shop.sort\n" in cli("worker", "show", "anna").stdout
    assert "tasks" not in json.loads(cli("worker", "list", "--json").stdout)[0]
    assert cli("worker", "pause", "anna", "--reason", "look at it").stdout == (
        f"{worker_id}\tanna\tPAUSED\tlook at it\n"
    )
    assert "has not received the order yet: look at it" in cli("worker", "show", "anna").stdout
    output = cli("worker", "history", "anna").stdout
    assert "pause\tRUNNING\tPAUSED\tsupervisor" in output
    assert "look at it" in output
    assert cli("worker", "resume", worker_id).stdout.split("\t")[2] == "RUNNING"


@pytest.mark.parametrize("verb", ["show", "history", "pause", "resume", "terminate", "drain"])
def test_a_worker_that_is_not_there_is_reported(cli: RunCli, shop: Shop, verb: str) -> None:
    for name in ("nobody", "w_000000000000", "../jobs"):
        answer = cli("worker", verb, name)
        assert (answer.returncode, answer.stdout) == (2, "")
        assert "There is no worker" in answer.stderr


def test_a_refused_worker_command_lists_the_allowed_events(cli: RunCli, shop: Shop) -> None:
    registered(shop, "anna")
    answer = cli("worker", "resume", "anna")
    assert answer.returncode == 2
    assert "In RUNNING the worker accepts:" in answer.stderr


def test_a_filter_can_be_previewed_and_changes_no_worker_without_confirmation(
    cli: RunCli, shop: Shop
) -> None:
    ids = registered(shop, "anna", "berta", labels=("gpu",))
    registered(shop, "carla")
    preview = cli("worker", "pause", "label:gpu", "--dry-run")
    assert all(worker_id in preview.stdout for worker_id in ids)
    refusal = cli("worker", "pause", "label:gpu")
    assert (refusal.returncode, "Refusing to pause 2 workers without confirmation" in refusal.stderr) == (
        2,
        True,
    )
    assert "PAUSED" not in cli("worker", "list").stdout
    done = cli("worker", "pause", "label:gpu", "--give-back", "--yes")
    assert [line.split("\t")[:3] for line in sorted(done.stdout.splitlines())] == [
        [worker_id, name, "PAUSED"] for worker_id, name in zip(ids, ("anna", "berta"), strict=True)
    ]
    again = cli("worker", "pause", "label:gpu", "--yes")
    assert (again.returncode, again.stderr) == (0, "No worker matches.\n"), "those are paused already"


def test_the_same_request_id_does_it_once(cli: RunCli, shop: Shop) -> None:
    registered(shop, "anna")
    for _ in range(2):
        assert cli("worker", "pause", "anna", "--request-id", "p").returncode == 0
    assert cli("worker", "history", "anna").stdout.count("\tpause\t") == 1
