"""Limits in code and in the project file, and how a worker registers them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from interlock.cli import project
from interlock.errors import InvalidArguments, InvalidSettings, StoreUnavailable
from interlock.testing.at_work import at_work
from interlock.wire.limits import LimitSpec
from interlock.worker.limits import DeclaredLimit, declare_limits
from interlock.worker.tasks import Registry
from interlock.worker.telemetry import make_log


def test_a_task_declares_its_own_limit_and_names_others() -> None:
    shop = Registry()

    @shop.task(name="order", limit=5, limits=["vendor-x"], weight=2)
    def order(number: int) -> None: ...

    assert shop.limits == {"task:order": DeclaredLimit(LimitSpec(max=5))}
    assert (order.spec(1).limits, order.spec(1).weight) == (("vendor-x",), 2)
    assert order.options(limits=["tenant:a"]).spec(1).limits == ("tenant:a",)
    wrong: list[Any] = [0, "vendor-x", True]
    for limit in wrong:
        with pytest.raises(InvalidArguments, match="cannot have limit="):
            shop.task(name="other", limit=limit)(lambda: None)


async def test_a_worker_registers_its_limits_and_holds_them() -> None:
    shop = Registry()
    running: list[int] = []
    peak = 0

    @shop.task(name="order", limit=2)
    async def order(number: int) -> int:
        nonlocal peak
        running.append(number)
        peak = max(peak, len(running))
        for _ in range(20):
            await asyncio.sleep(0)
        running.remove(number)
        return number

    async with at_work(shop) as il:

        async def registered() -> bool:
            return [view.name for view in await il.limits.list()] == ["task:order"]

        await until(registered, "the limit is registered")
        jobs = await il.submit_many([order.spec(number) for number in range(12)])
        assert [await job.result(timeout_s=60) for job in jobs] == list(range(12))
        assert peak <= 2
        assert (await il.limits.get("task:order")).source == "code"


class Port:
    """Keeps what is declared; refuses what it is told to."""

    def __init__(self, *, away: bool = False) -> None:
        self.kept: dict[tuple[str, str], int | None] = {}
        self._away = away

    async def declare_limit(self, name: str, spec: LimitSpec, source: str) -> None:
        if self._away:
            raise StoreUnavailable("Away.")
        if name == "bad":
            raise InvalidArguments("It is bad.")
        self.kept[name, source] = spec.max


async def test_a_limit_that_is_refused_does_not_keep_others_from_being_registered() -> None:
    log, port = make_log("error", "text"), Port()
    declared = {name: DeclaredLimit(LimitSpec(max=1)) for name in ("bad", "good")}
    await declare_limits(port, declared, log)
    assert port.kept == {("good", "code"): 1}
    await declare_limits(object(), declared, log)
    with pytest.raises(StoreUnavailable):
        await declare_limits(Port(away=True), declared, log)


def test_the_project_file_declares_limits_beside_sizes(tmp_path: Path) -> None:
    file = tmp_path / "interlock.toml"
    file.write_text(
        '[limits]\nmax_input_bytes = 7\n[limits.vendor-x]\nmax = 5\n[limits."tenant:*"]\nmax = 2\n'
    )
    here = project.load(start=tmp_path)
    assert here.settings.max_input_bytes == 7
    assert {name: each.spec.max for name, each in here.limits.items()} == {"vendor-x": 5, "tenant:*": 2}
    assert here.limits["vendor-x"].source == "interlock.toml"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("[limits.x]\nmaximum = 5", "there is no limits.x.maximum"),
        ("[limits.x]\nmax = 0", "max is 0 and must be 1 to 1000"),
        ('[limits.x]\nmax = "5"', "limits.NAME"),
        ("[limits]\nvendor = 5", "there is no limits.vendor"),
    ],
)
def test_a_limit_that_cannot_be_is_named(tmp_path: Path, config: str, message: str) -> None:
    (tmp_path / "interlock.toml").write_text(config)
    with pytest.raises(InvalidSettings) as wrong:
        project.load(start=tmp_path)
    assert message in wrong.value.sentence
