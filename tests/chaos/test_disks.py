"""Full disks and lost power: a short round, and the modes that must fail."""

from __future__ import annotations

import random
from pathlib import Path

import apsw
import pytest
from tests.effort import pick

from interlock_verification.chaos import disk_full, power_loss
from interlock_verification.chaos.forgetful_disk import ForgetfulDisk
from interlock_verification.chaos.verdict import Setup

LOSSES = pick(20, 60)


@pytest.mark.parametrize("mount", [True, False], ids=["on a small disk", "with small files"])
def test_a_full_disk_refuses_a_commit_as_a_whole_and_the_store_continues_when_there_is_room(
    mount: bool,
) -> None:
    verdict = disk_full.run(Setup(store="sqlite", rounds=5, seed=1), mount=mount)
    assert verdict.broken_promises == []
    assert verdict.counts["times_full"] == 5
    assert verdict.counts["acknowledged"] > 5


@pytest.mark.parametrize("mount", [True, False], ids=["on a small disk", "with small files"])
def test_a_client_that_does_not_listen_to_a_full_disk_is_found_out(mount: bool) -> None:
    verdict = disk_full.run(Setup(store="sqlite", rounds=1, seed=1, broken=True), mount=mount)
    assert verdict.counts["lost"] > 0
    assert verdict.broken_promises != []


def test_a_loss_of_power_takes_nothing_that_was_acknowledged() -> None:
    verdict = power_loss.run(Setup(store="sqlite", rounds=LOSSES, seed=1))
    assert verdict.broken_promises == []
    assert verdict.counts["power_losses"] == LOSSES
    assert verdict.counts["acknowledged"] > LOSSES


def test_a_log_that_is_not_flushed_with_every_commit_is_found_out() -> None:
    verdict = power_loss.run(Setup(store="sqlite", rounds=pick(15, 40), seed=1, broken=True))
    assert verdict.counts["lost"] > 0
    assert verdict.broken_promises != []


def test_a_forgetful_disk_keeps_flushed_writes_and_may_lose_any_part_of_the_other_writes(
    tmp_path: Path,
) -> None:
    disk = ForgetfulDisk("forgetful", lambda: None)
    flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_READWRITE, 0]
    file = disk.xOpen(str(tmp_path / "file"), flags)
    assert disk.after_power_loss(random.Random(1)) == {}
    file.xWrite(b"a" * 2_048, 0)
    file.xSync(apsw.SQLITE_SYNC_FULL)
    file.xWrite(b"b" * 2_048, 1_024)
    images = {disk.after_power_loss(random.Random(seed))["file"] for seed in range(50)}
    file.xClose()
    disk.unregister()
    assert b"a" * 2_048 in images
    assert b"a" * 1_024 + b"b" * 2_048 in images
    assert len(images) > 2, "a write may also be torn"
    assert all(image.startswith(b"a" * 1_024) for image in images), "what was flushed stays"
    assert (tmp_path / "file").read_bytes() == b"a" * 1_024 + b"b" * 2_048
