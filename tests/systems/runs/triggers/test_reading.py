"""What deliveries say about a change, and which run that is a reason for."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.systems.runs.triggers.deliveries import FORK, HERE, NONE, A, B, pull_request, push

from interlock.errors import BadPayload
from interlock.systems.runs.trigger_events import (
    MAX_COMMITS,
    MAX_PATHS,
    ChangeEvent,
    Evaluation,
    Hook,
    Ignored,
    Rule,
    read_event,
    rule_for,
    spec_of,
    unknown_targets,
)
from interlock.systems.runs.triggers import key_of
from interlock.wire.runs import (
    RunSpec,
    Source,
)

CI = Rule(run=Evaluation(workflow="ci", labels=("linux",)))


def read(event: str, payload: object) -> ChangeEvent | Ignored:
    return read_event(event, msgspec.json.encode(payload))


def change(event: str, payload: object) -> ChangeEvent:
    found = read(event, payload)
    assert isinstance(found, ChangeEvent)
    return found


def test_a_push_is_read_with_its_commits_changed_paths_actor_and_title() -> None:
    assert change("push", push()) == ChangeEvent(
        source=Source(
            repository="acme/shop",
            ref="refs/heads/main",
            sha=B,
            base_sha=A,
            event="push",
            changed_paths=("hats.py", "shop.py"),
            actor="ann",
            title="Sell hats",
        ),
        before=A,
    )


def test_a_pull_request_is_evaluated_at_its_head_against_its_base() -> None:
    source = change("pull_request", pull_request()).source
    assert (source.ref, source.sha, source.base_sha) == ("refs/pull/7/head", B, A)
    assert (source.pull_request, source.title, source.changed_paths) == (7, "Sell hats", None)


@pytest.mark.parametrize(
    ("head", "foreign"),
    [
        (HERE, False),
        (FORK, True),
        (None, True),
        ({"full_name": "acme/shop"}, False),
        ({"full_name": "mallory/shop"}, True),
        ({**HERE, "id": 5}, True),
    ],
)
def test_a_pull_request_counts_as_from_a_fork_unless_its_head_is_in_the_same_repository(
    head: dict[str, Any] | None, foreign: bool
) -> None:
    assert change("pull_request", pull_request(head=head)).source.from_fork is foreign


@pytest.mark.parametrize("action", ["opened", "synchronize", "reopened"])
def test_an_opened_synchronized_or_reopened_pull_request_is_evaluated(action: str) -> None:
    assert change("pull_request", pull_request(action)).source.event == "pull_request"


@pytest.mark.parametrize(
    ("event", "payload", "reason"),
    [
        ("ping", {"zen": "Keep it logically awesome.", "hook_id": 1}, "pong"),
        ("issues", {"action": "opened"}, "issues starts no run"),
        ("push", push(deleted=True, after=NONE, head_commit=None, commits=[]), "was deleted"),
        ("pull_request", pull_request("labeled"), "labeled"),
        ("pull_request", pull_request("closed"), "closed"),
    ],
)
def test_a_delivery_that_starts_no_run_is_ignored_with_a_reason(
    event: str, payload: object, reason: str
) -> None:
    found = read(event, payload)
    assert isinstance(found, Ignored)
    assert reason in found.reason


def test_a_push_of_a_new_branch_has_no_base_commit_and_unknown_changed_paths() -> None:
    created = change("push", push(ref="refs/heads/hats", before=NONE, created=True))
    assert (created.before, created.source.base_sha, created.source.changed_paths) == ("", "", None)


@pytest.mark.parametrize(
    "fields",
    [
        {"forced": True},
        {"commits": []},
        {"commits": [{"added": ["a"]}] * MAX_COMMITS},
        {"commits": [{"added": [f"{n}.py" for n in range(MAX_PATHS + 1)]}]},
    ],
)
def test_where_not_all_paths_are_known_none_are_reported(fields: dict[str, Any]) -> None:
    assert change("push", push(**fields)).source.changed_paths is None


def test_an_annotated_tag_is_evaluated_at_its_commit() -> None:
    tagged = push(ref="refs/tags/v1", before=NONE, after="d" * 40, created=True, commits=[])
    assert change("push", tagged).source.sha == B


@pytest.mark.parametrize(
    ("event", "payload"),
    [
        ("", push()),
        ("push", []),
        ("push", {"ref": "refs/heads/main"}),
        ("push", push(repository=None)),
        ("push", push(repository={"full_name": "../../etc"})),
        ("push", push(ref="main")),
        ("push", push(ref="refs/heads/" + "x" * 300)),
        ("push", push(after="HEAD")),
        ("push", push(commits=7)),
        ("pull_request", pull_request(number=-1)),
        ("pull_request", {"action": "opened"}),
        ("issues", []),
    ],
)
def test_a_payload_that_is_not_as_documented_is_refused_with_the_reason(event: str, payload: object) -> None:
    with pytest.raises(BadPayload) as refusal:
        read(event, payload)
    assert refusal.value.status == 422


@given(st.sampled_from(["push", "pull_request", "issues", "ping", ""]), st.binary(max_size=60))
def test_reading_an_event_from_arbitrary_bytes_raises_no_error_except_bad_payload(
    event: str, body: bytes
) -> None:
    with suppress(BadPayload):
        read_event(event, body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.data())
def test_no_value_in_any_place_is_more_than_refused(data: st.DataObject) -> None:
    event, payload = data.draw(st.sampled_from([("push", push()), ("pull_request", pull_request())]))
    place = data.draw(st.sampled_from(sorted(payload)))
    with suppress(BadPayload):
        read(event, {**payload, place: data.draw(JSON)})


def test_the_first_rule_that_fits_decides() -> None:
    rules = (
        Rule(run=Evaluation(workflow="release"), refs=("refs/tags/v*",), events=("push",)),
        Rule(run=Evaluation(workflow="docs"), repository="acme/docs"),
        Rule(run=Evaluation(workflow="ci"), repository="Acme/*"),
    )

    def workflow(event: str, payload: object) -> str:
        found = rule_for(change(event, payload), rules)
        return found.run.workflow if isinstance(found, Rule) else found.reason

    assert workflow("push", push()) == "ci"
    assert workflow("push", push(ref="refs/heads/a/b")) == "ci"
    assert workflow("push", push(ref="refs/tags/v1")) == "release"
    assert workflow("push", push(ref="refs/tags/other")).startswith("no rule fits push at refs/tags/other")
    assert workflow("push", push(repository={**HERE, "full_name": "acme/docs"})) == "docs"


def test_strangers_can_be_left_out() -> None:
    rule = Rule(run=Evaluation(workflow="ci"), forks="never")
    assert isinstance(rule_for(change("pull_request", pull_request(head=FORK)), [rule]), Ignored)
    assert rule_for(change("pull_request", pull_request()), [rule]) is rule


def test_a_run_is_created_for_the_pushed_commit_with_the_settings_of_the_matching_rule() -> None:
    pushed = change("push", push())
    rule = rule_for(pushed, [CI])
    assert isinstance(rule, Rule)
    spec = rule.run.of(pushed)
    assert (spec.workflow, spec.planner, spec.labels) == ("ci", "workflow", ("linux",))
    assert spec.source.sha == B


def test_one_change_has_one_key_and_another_change_another() -> None:
    same = [push(), push(commits=[], sender=None), push(repository={**HERE, "full_name": "ACME/Shop"})]
    assert len({key_of(change("push", one)) for one in same}) == 1
    pulls = [change("pull_request", pull_request()), change("pull_request", pull_request(number=8))]
    others = [
        push(),
        push(ref="refs/heads/other"),
        push(after="e" * 40),
        push(before="e" * 40),  # back to a commit whose run was superseded in between
        push(repository={**HERE, "full_name": "acme/other"}),
    ]
    keys = {key_of(one) for one in (*pulls, *(change("push", other) for other in others))}
    assert len(keys) == len(pulls) + len(others)
    assert all(len(key) <= 64 for key in keys)


def hook(**options: Any) -> Hook:
    return Hook(name="deploy", run=Evaluation(workflow="deploy", planner="flow", definition="a:b"), **options)


def test_a_hook_reads_the_fields_of_a_run_from_the_configured_paths_of_the_body() -> None:
    fields = {"source.sha": "commit.id", "inputs.target": "where", "inputs.dry": "dry?", "inputs.no": "no?"}
    body = b'{"commit": {"id": "abc"}, "where": 7, "dry": true, "more": []}'
    spec = spec_of(hook(fields=fields), body)
    assert spec.source == Source(sha="abc", event="deploy")
    assert spec.inputs == {"target": "7", "dry": "true"}
    assert (spec.workflow, spec.planner, spec.definition) == ("deploy", "flow", "a:b")


@pytest.mark.parametrize(
    "body",
    [b"{}", b"[]", b"{", b"\xff", b'{"a": {}}', b'{"a": []}', b'{"a": "' + b"x" * 5_000 + b'"}'],
)
def test_a_body_that_does_not_fit_the_mapping_is_refused(body: bytes) -> None:
    with pytest.raises(BadPayload):
        spec_of(hook(fields={"inputs.a": "a"}), body)


def test_a_hook_may_take_a_whole_run() -> None:
    spec = RunSpec(workflow="nightly", source=Source(sha="abc"))
    assert spec_of(hook(takes="run"), msgspec.json.encode(spec)) == spec
    with pytest.raises(BadPayload, match="unknown field"):
        spec_of(hook(takes="run"), b'{"workflw": "x"}')


def test_the_targets_of_a_hook_mapping_that_are_not_fields_of_a_run_are_listed() -> None:
    assert unknown_targets({"source.sha": "a", "inputs.x": "a"}) == []
    assert unknown_targets({"sha": "a", "inputs.": "b", "source.shaa": "c"}) == [
        "sha",
        "inputs.",
        "source.shaa",
    ]
