"""Workflow files: what is wrong with one is told with line and column, all of it at once."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import PlanRefused
from interlock.systems.runs.workflows import MAX_BYTES
from interlock.systems.runs.workflows.schema import workflow_schema
from interlock.systems.runs.workflows.workflow import name_of, read_workflow

FINE = """\
name: ci
on:
  push: {branches: [main, "release/*"], tags: v*, paths: ["src/**", "!src/docs/**"]}
  pull_request:
  manual:
inputs:
  target: {description: Where to, default: staging, options: [staging, production]}
concurrency: {group: "ci ${{ branch }}", cancel: true}
env: {DEBUG: 1, BRANCH: "${{ branch }}"}
defaults: {runs-on: linux, timeout: 10m, retries: 1}
timeout: 1h
fail-fast: false
jobs:
  lint:
    steps:
      - run: make lint
  test:
    needs: [lint]
    matrix:
      python: [3.10, 3.12]
      system: [linux, macos]
      exclude: [{python: 3.10, system: macos}]
    if: changed('src/**') or event == 'manual'
    runs-on: [big, "${{ matrix.system }}"]
    retry: {infra: {retries: 3, first-pause: 1s, longest-pause: 1m}}
    secrets: TOKEN
    artifacts: {name: "report-${{ matrix.python }}", path: [out/, "*.xml"]}
    cache: [{key: "pip-${{ matrix.python }}", files: "**/*.lock", path: .cache/pip, restore-keys: pip-}]
    steps:
      - name: unit
        run: |
          make test PYTHON=${{ matrix.python }}
        env: {SLOW: "no"}
        workdir: backend
        timeout: 90
        continue-on-error: true
  notify:
    needs: test
    after: docs
    optional: true
    task: shop.notify
    input: {text: done, times: [1, 2.5], loud: true, by: null}
  docs:
    if: inputs.target == 'staging' and not from_fork
    steps: [{run: make docs}]
"""


def faults(text: str, file: str = "ci.yml") -> list[str]:
    """What is said about a file, each as `line:column: sentence`."""
    with pytest.raises(PlanRefused) as refused:
        read_workflow(text, file)
    lines = refused.value.sentence.splitlines()[1:]
    assert all(line.startswith(f"{file}:") for line in lines)
    return [line.removeprefix(f"{file}:") for line in lines]


def only_fault(text: str) -> str:
    (found,) = faults(text)
    return found


def a_job(lines: str) -> str:
    return "jobs:\n  test:\n    steps: [{run: make}]\n" + "".join(
        f"    {line}\n" for line in lines.splitlines()
    )


def test_every_key_can_be_used() -> None:
    workflow = read_workflow(FINE, "ci.yml")
    assert (workflow.name, workflow.timeout, workflow.fail_fast) == ("ci", 3600.0, False)
    test = workflow.jobs["test"]
    assert test.matrix is not None
    assert test.matrix.axes["python"] == ("3.10", "3.12"), "a version is text, not a number"
    assert (test.steps[0].timeout, test.steps[0].continue_on_error) == (90.0, True)
    assert workflow.jobs["notify"].input == {"text": "done", "times": [1, 2.5], "loud": True, "by": None}


def test_a_workflow_without_a_name_is_called_like_its_file() -> None:
    assert name_of(read_workflow(a_job("")), ".interlock/nightly.yml") == "nightly"


def test_a_workflow_file_reads_on_and_no_as_text_and_not_as_booleans() -> None:
    workflow = read_workflow("on: push\nenv: {ANSWER: no, MAYBE: on}\n" + a_job(""))
    assert workflow.on is not None
    assert workflow.on.push is not None
    assert workflow.on.pull_request is None


def test_all_faults_are_reported_at_once_in_the_order_of_the_file() -> None:
    text = """\
nme: ci
on: [pusch]
jobs:
  a: {needs: b, steps: [{run: "x ${{ branch }}"}], if: "brnch == 'x'"}
  b:
    needs: [a, c]
    steps: []
    task: x
    timeout: 5y
    timeout: 3
    if: branch = main
  d:
    matrix: {p: [1, 2], exclude: [{p: 3}]}
    steps:
    - run: echo ${{ matrix.q }}
      fooo: 1
"""
    instead = "use the variable $INTERLOCK_BRANCH, or put it into env"
    known = "run, name, env, workdir, timeout and continue-on-error"
    assert faults(text) == [
        "1:1: there is no key of a workflow 'nme'; did you mean name?",
        "2:6: there is no event 'pusch'; did you mean push?",
        "4:14: jobs wait for each other: a → b → a",
        f"4:34: branch comes with the change and could hold a command; {instead}",
        "4:57: in the condition: there is no name 'brnch'; did you mean branch?",
        "6:5: a job has steps or task: one of them, not several",
        "6:16: there is no job 'c'; there is a, b and d",
        "7:12: this has to be a list of 1 to 200, not an empty list",
        "9:14: '5y' is not a duration; write 90s, 15m, 12h, 30d or 4w",
        "10:5: 'timeout' is there before, in line 9",
        "11:16: in the condition: '= main' is not understood",
        "13:34: {p: 3} is no combination, so it excludes nothing",
        "15:17: there is no axis of the matrix 'q'; there is p",
        f"16:7: there is no key of a step 'fooo'; there is {known}",
    ]


def test_the_facts_have_the_place_for_programs() -> None:
    with pytest.raises(PlanRefused) as refused:
        read_workflow("jobs: {a: {stepz: []}}", "x.yml")
    details = refused.value.facts
    assert (details["file"], details["line"], details["column"]) == ("x.yml", 1, 11)
    assert isinstance(details["faults"], list)
    assert details["faults"][1]["column"] == 12
    assert "steps" in details["faults"][1]["allowed"]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("needs: [test]", "4:13: jobs wait for each other: test → test"),
        ("timeout: [1]", "4:14: a duration is expected here, not a list"),
        ("timeout: 0", "4:14: a duration is more than 0 and less than a year"),
        ("retries: many", "4:14: this has to be a whole number from 0 to 100, not 'many'"),
        ("retries: 1000", "4:14: this has to be a whole number from 0 to 100, not '1000'"),
        ("limits: {staging: 1}", "4:13: "),
        ("weight: 0", "4:13: this has to be a whole number from 1 to 1,000, not '0'"),
        ("weigth: 2", "4:5: there is no key of a job 'weigth'; did you mean weight?"),
        ("limits: ['${{ branch }}']", "4:15: branch comes with the change and could hold a command"),
        ("optional: yes", "4:15: this has to be true or false, not 'yes'"),
        ("env: {A-B: 1}", "4:11: 'A-B' is no name of variable, which is written [A-Za-z_][A-Za-z0-9_]*"),
        ("env: [A]", "4:10: this has to be at most 200 names with their values, not a list"),
        ("retry: {lost: {retries: 1}}", "4:13: there is no class of failure 'lost'; there is user"),
        ("retry: {infra: {}}", "4:20: a retry rule needs retries"),
        ("input: {a: 1}", "3:5: input is for a task; steps have env"),
        ("env: {A: '${{ secrets.B }}'}", "4:15: a secret is a variable of the job"),
        ("queue: '${{ branch }}'", "4:13: branch comes with the change and could hold a command"),
        ("queue: '${{ env.A }}'", "4:13: a variable is written as the shell writes it: $A"),
        ("if: inputs.nope", "4:9: there is no input 'nope'"),
        ("matrix: {a: []}", "4:17: this has to be a list of 1 to 1,000, not an empty list"),
        ("matrix: {a: [x, x]}", "4:17: 'x' is there twice"),
        ("matrix: {a: [1], exclude: [{a: 1}]}", "4:13: no combination is left"),
        ("matrix: 3", "4:13: a matrix has at most 20 axes with values, not '3'"),
        ("'<<': {}", "4:5: << is not merged here"),
        ("? [a]\n: 1", "4:7: a key has to be text"),
    ],
)
def test_a_fault_in_a_job_of_a_workflow_file_is_reported_with_line_and_column(line: str, fault: str) -> None:
    assert fault in "\n".join(faults(a_job(line)))


@pytest.mark.parametrize("number", ["1e999", "-1.5E+400", "9" * 400 + ".5", "9" * 21, "9" * 5_000])
def test_a_number_that_json_cannot_hold_is_refused_and_not_made_nothing(number: str) -> None:
    text = "\n".join(faults(f"name: ci\njobs:\n  a: {{task: shop.send, input: {{x: {number}}}}}\n"))
    assert "3:35: the number is too large; put it in quotation marks" in text


def test_a_matrix_is_not_made_before_it_is_known_to_be_small() -> None:
    axes = ", ".join(f"a{n}: [{', '.join(map(str, range(50)))}]" for n in range(19))
    assert "combinations, and 1,000 is the most" in only_fault(a_job(f"matrix: {{{axes}}}"))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "1:1: the file is empty"),
        ("# nothing\n", "1:1: the file is empty"),
        ("jobs: {}", "1:1: a workflow has at least one job"),
        ("jobs: [", "1:8: invalid YAML: while parsing a flow node"),
        ("jobs:\n\ta: 1", "2:1: invalid YAML: while scanning for the next token"),
        ("a: 1\n---\nb: 2", "2:1: invalid YAML: expected a single document in the stream"),
        ("jobs: \x07", "1:7: there is a character that YAML does not allow"),
        ("jobs: \ud800", "1:7: there is a character that YAML does not allow"),
        ("jobs: &a [*a]", "1:7: it contains itself"),
        ("jobs: *a", "1:7: invalid YAML: found undefined alias 'a'"),
        ("[" * 500, "1:31: it is nested more than 30 levels deep"),
        ("jobs: !!python/object/apply:os.system [x]", "1:7: the tag 'python/object/apply:os.system'"),
        ("jobs: !!binary aGk=", "1:7: the tag 'binary' means nothing here"),
        ("- " * 5 + "x" * MAX_BYTES, "1:1: the file is 1,000,010 bytes large, and 1,000,000 is the most"),
        ("jobs: [" + "1," * 20_001 + "]", "there are more than 20,000 values"),
    ],
)
def test_a_file_that_is_no_use_is_refused_before_anything_is_made_of_it(text: str, fault: str) -> None:
    assert fault in "\n".join(faults(text))


def test_aliases_cannot_make_a_small_file_large() -> None:
    bomb = "a: &a [" + "x, " * 9 + "x]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        bomb += f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
    assert "written out, its aliases make more than 20,000 values" in only_fault(bomb)


def test_two_jobs_may_share_their_steps_through_a_yaml_alias() -> None:
    workflow = read_workflow("jobs:\n  a: {steps: &steps [{run: make}]}\n  b: {needs: a, steps: *steps}\n")
    assert workflow.jobs["a"].steps == workflow.jobs["b"].steps


@given(st.text(max_size=200))
def test_no_text_does_anything_but_be_read_or_be_refused(text: str) -> None:
    for whole in (text, f"jobs:\n  a:\n    {text}\n", a_job(f"if: {text!r}")):
        with suppress(PlanRefused):
            read_workflow(whole)


# The schema for editors


def test_the_workflow_schema_is_a_valid_json_schema_and_accepts_a_valid_workflow_file() -> None:
    schema = workflow_schema()
    jsonschema_rs.meta.validate(schema)
    assert jsonschema_rs.is_valid(schema, _for_editors(FINE))


@pytest.mark.parametrize(
    "text",
    [
        "nme: x\n" + a_job(""),
        "jobs: 3",
        a_job("needs: {a: 1}"),
        a_job("optional: 3"),
        a_job("task: x"),
        a_job("retries: -1"),
        a_job("matrix: {a: 3}"),
        a_job("retry: {lost: {retries: 1}}"),
    ],
)
def test_the_workflow_schema_refuses_a_file_whose_structure_the_reader_refuses(text: str) -> None:
    with pytest.raises(PlanRefused):
        read_workflow(text)
    assert not jsonschema_rs.is_valid(workflow_schema(), _for_editors(text))


def test_the_schema_that_is_checked_in_is_the_one_of_the_table() -> None:
    page = Path(__file__).parents[4] / "docs" / "reference" / "workflow.schema.json"
    assert json.loads(page.read_text(encoding="utf-8")) == workflow_schema()


def _for_editors(text: str) -> Any:
    """The file as an editor sees it, which reads YAML 1.2: `on` is no boolean there."""
    loaded = yaml.safe_load(text.replace("on:\n", "'on':\n"))
    assert isinstance(loaded, dict)
    return loaded
