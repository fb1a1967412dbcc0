"""Who may take a row, and who brings an event.

The owner of a row decides and commits it; nobody else may. Whoever brings the event only asks for
it. A runner asks for its attempt to succeed; the orchestrator makes it so.
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
