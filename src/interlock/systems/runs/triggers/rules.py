"""Which workflow a change is evaluated with: rules from the settings; the first that fits decides."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

import msgspec

from interlock.systems.runs.secrets import Secret
from interlock.systems.runs.triggers.github import Change, Ignored
from interlock.wire.runs import ForkTerms, RunSpec

MAX_BODY_BYTES = 5_242_880
Forks: TypeAlias = Literal["approve", "trust", "never"]


class Evaluation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How something is evaluated: what of a `RunSpec` does not depend on the change."""

    workflow: str = ""
    planner: str = "workflow"
    definition: str = ""
    inputs: dict[str, str] = {}
    concurrency_group: str | None = None
    labels: tuple[str, ...] = ()
    priority: int = 0

    def of(self, change: Change) -> RunSpec:
        """The run that evaluates a change."""
        return RunSpec(
            workflow=self.workflow,
            planner=self.planner,
            definition=self.definition,
            inputs=self.inputs,
            source=change.source,
            concurrency_group=self.concurrency_group,
            labels=self.labels,
            priority=self.priority,
        )


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Changes that fit all of this are evaluated so. `*` stands for anything, slashes included."""

    run: Evaluation
    repository: str = "*"
    events: tuple[str, ...] = ("push", "pull_request")
    refs: tuple[str, ...] = ("refs/heads/*", "refs/pull/*")
    """Tags are evaluated only where they are named."""
    forks: Forks = "approve"
    """What becomes of changes from forks: `approve`: an operator has to approve each commit; `trust`: none
    has to; `never`: they are not evaluated. Whatever it is, they see no secrets and run shell steps only."""
    trusted: tuple[str, ...] = ()
    """Accounts whose changes from forks need no approval."""
    fork_queue: str = ForkTerms().queue
    fork_labels: tuple[str, ...] = ()

    def terms(self, change: Change) -> ForkTerms:
        """What becomes of a change from a fork.

        Who has written it and who has sent the event must both be trusted: to reopen the pull request of a
        stranger is not to approve it.
        """
        trusted = {name.lower() for name in self.trusted}
        known = {change.author.lower(), change.source.actor.lower()} <= trusted
        approval = self.forks != "trust" and not known
        return ForkTerms(approval=approval, queue=self.fork_queue, labels=self.fork_labels)

    def fits(self, change: Change) -> bool:
        """Whether the change is one of those."""
        source = change.source
        return (
            fnmatchcase(source.repository.lower(), self.repository.lower())
            and source.event in self.events
            and any(fnmatchcase(source.ref, ref) for ref in self.refs)
            and (self.forks != "never" or not source.from_fork)
        )


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody else's webhooks, signed as Standard Webhooks say."""

    name: str
    keys: tuple[Secret, ...] = ()
    takes: str = "event"
    """`run`: the body is a RunSpec; `event`: the run is as said here, with some fields from the body."""
    run: Evaluation = Evaluation()
    fields: dict[str, str] = {}
    """Where in the body a part of the run is: `{"source.sha": "commit.id", "inputs.env": "target?"}`."""
    tolerance_s: float = 300.0


class TriggerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Who may start runs by a webhook, and which."""

    github_secrets: tuple[Secret, ...] = ()
    rules: tuple[Rule, ...] = ()
    hooks: tuple[Hook, ...] = ()
    max_body_bytes: int = MAX_BODY_BYTES


def rule_for(change: Change, rules: Iterable[Rule]) -> Rule | Ignored:
    """The first rule that fits a change."""
    for rule in rules:
        if rule.fits(change):
            return rule
    source = change.source
    fork = " from a fork" if source.from_fork else ""
    return Ignored(f"no rule fits {source.event}{fork} at {source.ref} of {source.repository}")
