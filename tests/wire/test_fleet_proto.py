"""The Python beside fleet.proto is what the proto makes, and its numbers are those of the table."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

from interlock.lifecycles import workload
from interlock.wire.fleet import fleet_pb2

ROOT = Path(__file__).parents[2]


@pytest.fixture
def proto(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.delitem(sys.modules, "tools.proto", raising=False)
    from tools import proto

    return proto


def test_the_generated_python_modules_match_the_fleet_proto(proto: ModuleType) -> None:
    assert proto.main(["--check"]) == 0


def test_a_file_that_is_stale_or_missing_would_be_noticed(proto: ModuleType, tmp_path: Path) -> None:
    fleet = tmp_path / proto.PROTO.parent
    shutil.copytree(ROOT / "src" / proto.PROTO.parent, fleet)
    (fleet / "fleet_pb2.pyi").unlink()
    (fleet / "fleet.proto").write_text((fleet / "fleet.proto").read_text().replace("late_ns", "later_ns"))
    assert proto.stale(tmp_path) == ["fleet_pb2.py", "fleet_pb2.pyi"]


def test_the_numbers_on_the_wire_are_those_of_the_table() -> None:
    wire = {name: number for name, number in fleet_pb2.Status.items() if number}
    assert wire == {status.name: status.value for status in workload.Status}
