"""Looking at a request: everything that is wrong with it is told at once, and nothing is run for that."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from interlock.agent.port import load_kind, offered_kinds
from interlock.agent.validation import RequestedWorkload, ValidRequest, look_at
from interlock.errors import CannotLoad, InvalidWorkload
from interlock.lifecycles.durations import DEFAULTS

KINDS = offered_kinds()
NOW = 1_800_000_000 * 10**9


def look(kind: str = "sleep", spec: Any = None, **more: Any) -> ValidRequest:
    fields = {"workload_id": "w", **more}
    request = RequestedWorkload(kind=kind, spec=msgspec.json.encode(spec or {}), **fields)
    return look_at(request, KINDS, DEFAULTS, NOW)


def test_a_request_without_durations_gets_the_defaults() -> None:
    checked = look()
    assert (checked.duration_s, checked.prepare_s) == (3_600.0, 1.0)
    assert look(prepare_s=0.0).prepare_s == 0.0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"workload_id": ""}, "workload_id"),
        ({"workload_id": "a" * 65}, "workload_id"),
        ({"workload_id": "a\nb"}, "workload_id"),
        ({"kind": "sleeep"}, "did you mean sleep?"),
        ({"duration_s": 3_601.0}, "duration_s is 3601"),
        ({"duration_s": -1.0}, "duration_s is -1"),
        ({"rate": float("inf")}, "rate is inf"),
        ({"concurrency": 10_001}, "concurrency is 10001"),
        ({"prepare_s": 61.0}, "prepare_s is 61"),
        ({"start_at_unix_ns": NOW + 61 * 10**9}, "the start is 61.0 s ahead"),
        ({"spec": {"operation_s": -1}}, "operation_s must be between"),
        (
            {"spec": {"operation": 1}},
            "`operation` (did you mean operation_s?), which sleep does not",
        ),
        ({"spec": {"nap": 1}}, "with has the key `nap`, which sleep does not know; there is operation_s"),
        ({"spec": {"operation_s": "long"}}, "with.operation_s has to be a number, not text"),
        ({"spec": [1]}, "with has to be keys with values, not a list"),
        ({"kind": "python", "spec": {"target": "no colon"}}, "package.module:function"),
        ({"kind": "python"}, "with has no key `target`, which python needs"),
        (
            {"kind": "command", "spec": {"command": 7}},
            "with.command has to be text or a list, not a whole",
        ),
        (
            {"kind": "command", "spec": {"command": ["a", 7]}},
            "with.command[1] has to be text, not a whole",
        ),
        ({"kind": "command", "spec": {"command": []}}, "must name a program"),
        ({"kind": "command", "spec": {"command": ""}}, "must name a program"),
        ({"kind": "http", "spec": {"url": "http://example.org/"}}, "must be of this machine"),
        ({"kind": "http", "spec": {"url": "http://127.0.0.1.example.org/"}}, "must be of this machine"),
        ({"kind": "http", "spec": {"url": "http://localhost@example.org/"}}, "must be of this machine"),
        ({"kind": "http", "spec": {"url": "ftp://127.0.0.1/"}}, "must look like"),
        ({"kind": "http", "spec": {"url": "http://127.0.0.1:x/"}}, "url: "),
        ({"kind": "http", "spec": {"url": "http://127.0.0.1/", "method": "HEAD"}}, "method must be"),
        (
            {"kind": "http", "spec": {"url": "http://127.0.0.1/", "headers": {"a": "b\r\nc: d"}}},
            "one line of ASCII",
        ),
        ({"kind": "http", "spec": {"url": "http://127.0.0.1/ HTTP/1.1\r\nX: y"}}, "url must have no spaces"),
    ],
)
def test_an_invalid_workload_request_is_refused_with_the_reason(more: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidWorkload) as refused:
        look(**more)
    assert message in refused.value.sentence


def test_all_faults_are_reported_at_once() -> None:
    with pytest.raises(InvalidWorkload) as refused:
        look(kind="nothing", workload_id="", rate=-1.0)
    assert len(refused.value.facts["faults"]) == 3  # type: ignore[arg-type]


def test_a_spec_that_is_no_json_is_reported() -> None:
    with pytest.raises(InvalidWorkload, match="spec is not JSON: Input data was truncated"):
        look_at(RequestedWorkload(workload_id="w", kind="sleep", spec=b"{"), KINDS, DEFAULTS, NOW)


@pytest.mark.parametrize(
    "home", ["nowhere:Nothing", "interlock.agent.port:Nothing", "json:loads", "nonsense"]
)
def test_a_name_that_is_not_a_workload_class_cannot_be_loaded_as_a_kind(home: str) -> None:
    with pytest.raises(CannotLoad) as refused:
        load_kind(home)
    assert refused.value.todo


def test_a_kind_of_ones_own_takes_precedence_over_one_of_ours() -> None:
    assert offered_kinds(["tests.agent.own:Nap"])["sleep"].home == "tests.agent.own:Nap"
    assert list(offered_kinds()) == ["command", "http", "python", "sleep"]
