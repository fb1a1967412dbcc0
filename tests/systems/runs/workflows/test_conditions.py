"""The language of conditions: what holds, what it has looked at, and what it does not understand."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.systems.runs.workflows.expressions import (
    ChangeFacts,
    ConditionError,
    environment,
    fault_of,
    matching,
    read_condition,
)
from interlock.wire.runs import Source

PUSH = Source(event="push", ref="refs/heads/main", sha="abc", changed_paths=("src/a/b.py", "README.md"))
KNOWN = ChangeFacts(PUSH, {"target": "staging", "quick": ""}, {"python": "3.12"})


@pytest.mark.parametrize(
    "text",
    [
        "branch == 'main'",
        'branch == "main"',
        "branch != 'x' and event == 'push'",
        "event in ('manual', 'push')",
        "branch matches 'm*'",
        "not tag",
        "not inputs.quick",
        "not not branch",
        "inputs.target",
        "matrix.python == 3.12",
        "from_fork == false",
        "true or branch == 'x'",
        "false and branch == 'x' or true",
        "not (false or tag)",
        "changed('src/**')",
        "changed('docs/**', '*.md')",
        "not changed('src/**', '!src/a/**')",
        "pull_request == ''",
    ],
)
def test_a_true_condition_holds_and_its_negation_does_not(text: str) -> None:
    assert read_condition(text).holds(KNOWN)
    assert not read_condition(f"not ({text})").holds(KNOWN)


def test_a_changed_condition_holds_if_the_changed_paths_are_unknown() -> None:
    unknown = ChangeFacts(Source())
    assert read_condition("changed('src/**')").holds(unknown)
    assert read_condition("changed('src/**')").seen(unknown) == "the changed paths are unknown"
    assert not read_condition("changed('src/**')").holds(ChangeFacts(Source(changed_paths=())))


def test_a_condition_reports_the_values_that_it_was_evaluated_on() -> None:
    condition = read_condition("branch == 'x' and (changed('docs/**') or inputs.target == branch)")
    assert condition.seen(KNOWN) == (
        "branch is 'main', inputs.target is 'staging', no changed path matches docs/** (there are 2)"
    )
    assert read_condition("changed('src/**')").seen(KNOWN) == "src/a/b.py has changed, which matches src/**"


@pytest.mark.parametrize(
    ("text", "offset", "message"),
    [
        ("", 0, "a name or a text is missing at the end"),
        ("branch ==", 9, "a name or a text is missing at the end"),
        ("branch == 'main", 10, '"\'main" is not understood'),
        ("branch = 'main'", 7, "is not understood"),
        ("(branch", 7, ") is missing at the end"),
        ("branch 'x'", 7, "and, or, or a comparison is missing before 'x'"),
        ("branch and", 10, "a name or a text is missing at the end"),
        ("changed(branch)", 8, "changed takes patterns in quotation marks"),
        ("changed('/src')", 8, "matches nothing; paths begin without a slash"),
        ("changed()", 8, "a name or a text is missing before )"),
        ("secrets.TOKEN", 0, "there is no name 'secrets.TOKEN'"),
        ("inputs.", 0, "there is no name 'inputs.'"),
        ("__import__", 0, "there is no name '__import__'"),
        ("event in 'push'", 9, "( is missing before 'push'"),
        ("(" * 30 + "true" + ")" * 30, 21, "the parentheses are too deep"),
        ("not " * 30 + "true", 88, "there are too many nots"),
        ("x" * 3_000, 0, "a condition has at most 2,000 characters"),
    ],
)
def test_an_invalid_condition_is_refused_with_the_position_of_the_error(
    text: str, offset: int, message: str
) -> None:
    with pytest.raises(ConditionError) as bad:
        read_condition(text)
    assert message in bad.value.sentence
    assert bad.value.offset == offset


@given(st.text(alphabet="abr nchot()'\"=!,.andi", max_size=60))
def test_no_text_does_anything_but_hold_or_not_or_be_refused(text: str) -> None:
    with suppress(ConditionError):
        holds = read_condition(text).holds(KNOWN)
        assert holds is not read_condition(f"not ({text})").holds(KNOWN)


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("main", "main", True),
        ("main", "main2", False),
        ("release/*", "release/1", True),
        ("release/*", "release/1/2", False),
        ("release/**", "release/1/2", True),
        ("docs/**", "docs", False),
        ("docs/", "docs/a/b", True),
        ("**/*.py", "a.py", True),
        ("**/*.py", "a/b/c.py", True),
        ("src/**/test_*.py", "src/test_a.py", True),
        ("src/**/test_*.py", "src/a/b/test_a.py", True),
        ("src/**/test_*.py", "lib/test_a.py", False),
        ("**", "anything/at/all", True),
        ("v?.?", "v1.2", True),
        ("*", "a/b", False),
    ],
)
def test_patterns(pattern: str, name: str, matches: bool) -> None:
    assert (matching(name, [pattern]) is not None) is matches


def test_the_last_pattern_that_matches_decides() -> None:
    patterns = ["src/**", "!src/docs/**", "src/docs/conf.py"]
    assert matching("src/a.py", patterns) == "src/**"
    assert matching("src/docs/a.md", patterns) is None
    assert matching("src/docs/conf.py", patterns) == "src/docs/conf.py"


def test_a_pattern_with_many_stars_takes_no_longer() -> None:
    assert matching("a" * 4_000, ["*a" * 15 + "b"]) is None
    assert matching("/".join("a" * 500), ["**/a/**/a/**/a/**/a/**/b"]) is None
    assert fault_of("/".join("*" * 30)) is not None


def test_steps_receive_the_event_branch_commit_and_inputs_as_environment_variables() -> None:
    assert environment(KNOWN) == {
        "INTERLOCK_EVENT": "push",
        "INTERLOCK_BRANCH": "main",
        "INTERLOCK_REF": "refs/heads/main",
        "INTERLOCK_SHA": "abc",
        "INTERLOCK_FROM_FORK": "false",
        "INTERLOCK_INPUT_TARGET": "staging",
    }
