"""Events that start runs: the payload of GitHub or another sender, and the rule that maps it to a workflow.

GitHub. Only the fields that a run needs are read, as documented at
https://docs.github.com/webhooks/webhook-events-and-payloads. An event that starts no run is `Ignored`, with
the reason, which is shown with the delivery on GitHub.

Generic webhooks contain a whole `RunSpec`, or some fields of one, found by a mapping from the settings.

Rules. The first rule of the settings that matches a change names its workflow.

Why: decisions 0192 and 0201.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from interlock.errors import BadPayload
from interlock.systems.orchestrator.texts import opening
from interlock.systems.runs.webhook_security import Secret
from interlock.wire.runs import (
    ForkTerms,
    RunSpec,
    Source,
)

MAX_COMMITS = 2_048
"""Maximum number of commits in a push event: paths of a larger push are unknown."""
MAX_PATHS = 1_000
MAX_PATHS_BYTES = 65_536
MAX_TITLE = 200
MAX_REF = 255
ACTIONS = ("opened", "synchronize", "reopened")
"""Actions of a pull request that change its commits."""

_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REPOSITORY = re.compile(r"[\w.-]{1,100}/[\w.-]{1,100}", re.ASCII)


class Ignored(msgspec.Struct, frozen=True):
    """An event that starts no run."""

    reason: str


class ChangeEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that may start a run."""

    source: Source
    before: str = ""
    """The previous commit of the ref: returning to an old commit is a change, too."""
    at: datetime | None = None
    """Time of the event by the clock of GitHub; deliveries may be late, and out of order."""
    author: str = ""
    """Author of the pull request; the sender of the event may differ."""


class _GitHubUser(msgspec.Struct):
    login: str = ""
    name: str = ""


class _Repository(msgspec.Struct):
    full_name: str
    id: int | None = None
    pushed_at: Any = None
    """Time of a push, in seconds."""


class _Commit(msgspec.Struct):
    id: str = ""
    message: str = ""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()


class _Push(msgspec.Struct):
    ref: str
    before: str
    after: str
    repository: _Repository
    created: bool = False
    deleted: bool = False
    forced: bool = False
    commits: tuple[_Commit, ...] = ()
    head_commit: _Commit | None = None
    pusher: _GitHubUser | None = None
    sender: _GitHubUser | None = None


class _Side(msgspec.Struct):
    sha: str
    repo: _Repository | None = None
    """None if the fork was deleted."""


class _PullRequest(msgspec.Struct):
    head: _Side
    base: _Side
    title: str = ""
    user: _GitHubUser | None = None
    updated_at: Any = None


class _PullRequestEvent(msgspec.Struct):
    action: str
    number: int
    pull_request: _PullRequest
    repository: _Repository
    before: str = ""
    sender: _GitHubUser | None = None


class _Any(msgspec.Struct):
    """Any object."""


def read_event(event: str, body: bytes) -> ChangeEvent | Ignored:
    """Decode an event of the type in X-GitHub-Event."""
    match event:
        case "push":
            return _of_push(_github_payload(event, body, _Push))
        case "pull_request":
            return _of_pull_request(_github_payload(event, body, _PullRequestEvent))
        case "ping":
            return Ignored("pong: the webhook is set up")
        case "":
            raise BadPayload(
                "The delivery has no header X-GitHub-Event.", todo="Let GitHub send it; nothing was done."
            )
        case _:
            _github_payload(event, body, _Any)
            return Ignored(f"the event {event[:100]} starts no run; push and pull_request do")


def _of_push(push: _Push) -> ChangeEvent | Ignored:
    _check(push.repository.full_name, push.ref, push.before, push.after)
    if push.deleted or _is_none(push.after):
        return Ignored(f"{push.ref} was deleted")
    before = "" if _is_none(push.before) else push.before
    head = push.head_commit
    sha = head.id if head is not None and head.id and push.ref.startswith("refs/tags/") else push.after
    _check_sha(sha)
    return ChangeEvent(
        source=Source(
            repository=push.repository.full_name,
            ref=push.ref,
            sha=sha,  # of the commit: an annotated tag is a separate object, without a status
            base_sha=before,
            event="push",
            changed_paths=_paths(push),
            actor=_actor(push.sender, push.pusher),
            title=_title(head.message if head is not None else ""),
        ),
        before=before,
        at=_time(push.repository.pushed_at),
    )


def _of_pull_request(event: _PullRequestEvent) -> ChangeEvent | Ignored:
    pull_request, number = event.pull_request, event.number
    if event.action not in ACTIONS:
        return Ignored(f"{event.action[:100]} needs no evaluation")
    if not 0 < number < 2**53:
        raise _github_misfit("number is not the number of a pull request")
    _check(
        event.repository.full_name, f"refs/pull/{number}/head", pull_request.base.sha, pull_request.head.sha
    )
    return ChangeEvent(
        source=Source(
            repository=event.repository.full_name,
            ref=f"refs/pull/{number}/head",
            sha=pull_request.head.sha,
            base_sha=pull_request.base.sha,
            event="pull_request",
            pull_request=number,
            from_fork=_is_from_fork(pull_request.head.repo, event.repository),
            actor=_actor(event.sender),
            title=_title(pull_request.title),
        ),
        before=event.before if _SHA.fullmatch(event.before) else "",
        author=_actor(pull_request.user),
        at=_time(pull_request.updated_at),
    )


def _is_from_fork(head: _Repository | None, here: _Repository) -> bool:
    """Return whether a change is not surely of this repository."""
    if head is None:
        return True
    if head.id is not None and here.id is not None:
        return head.id != here.id
    return head.full_name != here.full_name


def _paths(push: _Push) -> tuple[str, ...] | None:
    """Return the changed paths of a push; None if the event does not list all."""
    if push.created or push.forced or not push.commits or len(push.commits) >= MAX_COMMITS:
        return None
    found = {path for c in push.commits for path in (*c.added, *c.removed, *c.modified)}
    if len(found) > MAX_PATHS or sum(len(path) for path in found) > MAX_PATHS_BYTES:
        return None
    return tuple(sorted(found))


def _check(repository: str, ref: str, *shas: str) -> None:
    if not _REPOSITORY.fullmatch(repository):
        raise _github_misfit("repository.full_name is not owner/name")
    if not (ref.startswith("refs/") and len(ref) <= MAX_REF and ref.isprintable()):
        raise _github_misfit("ref is not refs/…")
    for sha in shas:
        _check_sha(sha)


def _check_sha(sha: str) -> None:
    if not _SHA.fullmatch(sha):
        raise _github_misfit("a commit is not named by 40 or 64 hex digits")


def _is_none(sha: str) -> bool:
    """Return whether git's notation for "no commit" was given."""
    return not sha.strip("0")


def _time(value: object) -> datetime | None:
    """Return a time from seconds or ISO 8601.

    Return None if it is invalid, since no run depends on it.
    """
    try:
        return msgspec.convert(value, datetime, strict=False).astimezone(UTC)
    except (msgspec.ValidationError, ValueError, OverflowError):
        return None


def _title(message: str) -> str:
    return opening(message.strip().partition("\n")[0], MAX_TITLE)


def _actor(*users: _GitHubUser | None) -> str:
    names = (user.login or user.name for user in users if user is not None)
    return opening(next((name for name in names if name), ""), 100)


T = TypeVar("T")


def _github_payload(event: str, body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _github_misfit(f"{str(error).replace('`', '')} ({event[:100]})") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _github_misfit("it is not JSON") from None


def _github_misfit(why: str) -> BadPayload:
    return BadPayload(
        f"The body is not what GitHub documents for its event: {why}.",
        todo="Set the content type of the webhook to application/json; nothing was done.",
        facts={"why": why},
    )


MAX_BODY_BYTES = 5_242_880
Forks: TypeAlias = Literal["approve", "trust", "never"]


class Evaluation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of a `RunSpec` that do not depend on the change."""

    workflow: str = ""
    planner: str = "workflow"
    definition: str = ""
    inputs: dict[str, str] = {}
    concurrency_group: str | None = None
    labels: tuple[str, ...] = ()
    priority: int = 0

    def of(self, change: ChangeEvent) -> RunSpec:
        """Return the run that evaluates a change."""
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
    """A rule that maps matching changes to a workflow. `*` matches anything, slashes included."""

    run: Evaluation
    repository: str = "*"
    events: tuple[str, ...] = ("push", "pull_request")
    refs: tuple[str, ...] = ("refs/heads/*", "refs/pull/*")
    """Patterns of refs; tags are evaluated only if they are named."""
    forks: Forks = "approve"
    """Handling of changes from forks: `approve`: an operator has to approve each commit; `trust`: no
    approval; `never`: they are not evaluated. In every case they receive no secrets and run only shell steps.
    """
    trusted: tuple[str, ...] = ()
    """Accounts whose changes from forks need no approval."""
    fork_queue: str = ForkTerms().queue
    fork_labels: tuple[str, ...] = ()

    def terms(self, change: ChangeEvent) -> ForkTerms:
        """Return the restrictions for a change from a fork.

        The author and the sender of the event must both be trusted: reopening the pull request of an
        untrusted author does not approve it.
        """
        trusted = {name.lower() for name in self.trusted}
        known = {change.author.lower(), change.source.actor.lower()} <= trusted
        approval = self.forks != "trust" and not known
        return ForkTerms(approval=approval, queue=self.fork_queue, labels=self.fork_labels)

    def fits(self, change: ChangeEvent) -> bool:
        """Return whether the rule matches the change."""
        source = change.source
        return (
            fnmatchcase(source.repository.lower(), self.repository.lower())
            and source.event in self.events
            and any(fnmatchcase(source.ref, ref) for ref in self.refs)
            and (self.forks != "never" or not source.from_fork)
        )


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """A generic webhook, signed according to Standard Webhooks."""

    name: str
    keys: tuple[Secret, ...] = ()
    takes: str = "event"
    """`run`: the body is a RunSpec; `event`: the run is configured here, with some fields from the body."""
    run: Evaluation = Evaluation()
    fields: dict[str, str] = {}
    """Maps parts of the run to paths in the body: `{"source.sha": "commit.id", "inputs.env": "target?"}`."""
    tolerance_s: float = 300.0


class TriggerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Webhooks that may start runs, and their rules."""

    github_secrets: tuple[Secret, ...] = ()
    rules: tuple[Rule, ...] = ()
    hooks: tuple[Hook, ...] = ()
    max_body_bytes: int = MAX_BODY_BYTES


def rule_for(change: ChangeEvent, rules: Iterable[Rule]) -> Rule | Ignored:
    """Return the first rule that matches a change."""
    for rule in rules:
        if rule.fits(change):
            return rule
    source = change.source
    fork = " from a fork" if source.from_fork else ""
    return Ignored(f"no rule fits {source.event}{fork} at {source.ref} of {source.repository}")


MAX_VALUE = 4_096
_INPUT = "inputs."
_SOURCE = "source."
_OPTIONAL = "?"


def spec_of(hook: Hook, body: bytes) -> RunSpec:
    """Return the run that a delivery requests."""
    if hook.takes == "run":
        return _generic_payload(body, RunSpec)
    content = _generic_payload(body, dict[str, Any])
    source: dict[str, Any] = {"event": hook.name}
    inputs = dict(hook.run.inputs)
    for target, path in hook.fields.items():
        value = _value_at(content, path)
        if value is None:
            continue
        if target.startswith(_INPUT):
            inputs[target.removeprefix(_INPUT)] = _text(value, path)
        else:
            source[target.removeprefix(_SOURCE)] = value
    run = hook.run
    return RunSpec(
        workflow=run.workflow,
        planner=run.planner,
        definition=run.definition,
        inputs=inputs,
        source=_source(source),
        concurrency_group=run.concurrency_group,
        labels=run.labels,
        priority=run.priority,
    )


def unknown_targets(fields: dict[str, str]) -> list[str]:
    """Return the invalid targets of a mapping."""
    parts = {f"{_SOURCE}{field}" for field in Source.__struct_fields__}
    return [t for t in fields if t not in parts and not (t.startswith(_INPUT) and t != _INPUT)]


def _value_at(content: Any, path: str) -> Any:
    """Return the value at a dotted path; None if it is missing and optional."""
    value = content
    for part in path.removesuffix(_OPTIONAL).split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None and not path.endswith(_OPTIONAL):
        raise _generic_misfit(f"there is nothing at {path}")
    return value


def _text(value: object, path: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise _generic_misfit(f"the value at {path} is no text and no number")
    text = str(value)
    if len(text) > MAX_VALUE:
        raise _generic_misfit(f"the value at {path} has more than {MAX_VALUE} characters")
    return text


def _source(given: dict[str, Any]) -> Source:
    try:
        return msgspec.convert(given, Source)
    except msgspec.ValidationError as error:
        raise _generic_misfit(str(error).replace("`", "")) from None


def _generic_payload(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _generic_misfit(str(error).replace("`", "")) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _generic_misfit("it is not JSON") from None


def _generic_misfit(why: str) -> BadPayload:
    return BadPayload(
        f"The body is not what this webhook takes: {why}.",
        todo="See docs/guides/webhooks-and-statuses.md; nothing was done.",
        facts={"why": why},
    )
