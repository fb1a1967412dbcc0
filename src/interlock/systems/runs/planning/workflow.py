"""Workflow files: from the text to something that plans can be made of.

    name: ci
    on: [push, pull_request]
    jobs:
      lint:
        steps:
          - run: make lint
      test:
        needs: lint
        matrix: {python: ["3.11", "3.12"]}
        if: changed('src/**', 'tests/**')
        steps:
          - run: make test PYTHON=${{ matrix.python }}

What is wrong is told with line and column, all of it at once.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from interlock.systems.runs.planning.checks import check
from interlock.systems.runs.planning.faults import Faults, Place
from interlock.systems.runs.planning.model import WorkflowFile
from interlock.systems.runs.planning.nodes import compose
from interlock.systems.runs.planning.table import WORKFLOW


def read_workflow(text: str, file: str = "workflow.yml") -> WorkflowFile:
    """The workflow in a file; raises `PlanRefused` with everything that is wrong with it."""
    faults = Faults(file)
    node = compose(text, faults)
    if node is None:
        if not faults.found:
            faults.add(Place(1, 1), "the file is empty")
        raise faults.refusal()
    found: WorkflowFile = WORKFLOW.read(node, faults)
    check(found, faults)
    faults.refuse_if_any()
    return found


def name_of(workflow: WorkflowFile, file: str) -> str:
    """What its runs are called: its name, or that of the file."""
    return workflow.name or PurePosixPath(file).stem
