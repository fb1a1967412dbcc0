"""The owners of transitions, and the senders of events.

The owner of a row alone decides and commits it. The sender of an event only requests it: a runner
requests that its attempt succeeds, and the orchestrator commits it.
"""

from __future__ import annotations

from enum import StrEnum


class Owner(StrEnum):
    """The parties to the machines."""

    ORCHESTRATOR = "orchestrator"
    PLANNER = "planner"
    REPORTER = "reporter"
    RUNNER = "runner"
    SUPERVISOR = "supervisor"
    WORKER = "worker"
    PROCESS = "process"
    TASK = "task"
    AGENT = "agent"
    CONTROLLER = "controller"
    SIMULATOR = "simulator"
    USER = "user"
    CLOCK = "clock"
    SYSTEM = "operating system"
