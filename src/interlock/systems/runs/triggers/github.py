"""What an event of GitHub says about a change.

Of the many fields of an event only those are read that a run is about, as they are documented at
https://docs.github.com/webhooks/webhook-events-and-payloads. An event that is no reason for a run is
`Ignored`, with the reason, so that whoever looks at the deliveries on GitHub sees why nothing happened.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from interlock.systems.orchestrator.texts import opening
from interlock.systems.runs.triggers.errors import BadPayload
from interlock.wire.runs import Source

MAX_COMMITS = 2_048
"""GitHub names at most so many commits of a push: of a larger one nobody knows all paths."""
MAX_PATHS = 1_000
MAX_PATHS_BYTES = 65_536
MAX_TITLE = 200
MAX_REF = 255
ACTIONS = ("opened", "synchronize", "reopened")
"""What happens to a pull request that changes what is to be evaluated."""

_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REPOSITORY = re.compile(r"[\w.-]{1,100}/[\w.-]{1,100}", re.ASCII)


class Ignored(msgspec.Struct, frozen=True):
    """An event that is no reason for a run."""

    reason: str


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """An event that may be a reason for a run."""

    source: Source
    before: str = ""
    """What the ref was at before: coming back to an old commit is a change, too."""
    at: datetime | None = None
    """When it happened, by the clock of GitHub; deliveries come late, and in any order."""
    author: str = ""
    """Whose pull request it is; who has sent the event may be another."""


class _User(msgspec.Struct):
    login: str = ""
    name: str = ""


class _Repository(msgspec.Struct):
    full_name: str
    id: int | None = None
    pushed_at: Any = None
    """In the event of a push: when that was, in seconds."""


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
    pusher: _User | None = None
    sender: _User | None = None


class _Side(msgspec.Struct):
    sha: str
    repo: _Repository | None = None
    """None when the fork that it came from is gone."""


class _PullRequest(msgspec.Struct):
    head: _Side
    base: _Side
    title: str = ""
    user: _User | None = None
    updated_at: Any = None


class _PullRequestEvent(msgspec.Struct):
    action: str
    number: int
    pull_request: _PullRequest
    repository: _Repository
    before: str = ""
    sender: _User | None = None


class _Any(msgspec.Struct):
    """Whatever else it is, it is an object."""


def read_event(event: str, body: bytes) -> Change | Ignored:
    """What the event called so in X-GitHub-Event says."""
    match event:
        case "push":
            return _of_push(_decoded(event, body, _Push))
        case "pull_request":
            return _of_pull_request(_decoded(event, body, _PullRequestEvent))
        case "ping":
            return Ignored("pong: the webhook is set up")
        case "":
            raise BadPayload(
                "The delivery has no header X-GitHub-Event.", todo="Let GitHub send it; nothing was done."
            )
        case _:
            _decoded(event, body, _Any)
            return Ignored(f"the event {event[:100]} starts no run; push and pull_request do")


def _of_push(push: _Push) -> Change | Ignored:
    _check(push.repository.full_name, push.ref, push.before, push.after)
    if push.deleted or _is_none(push.after):
        return Ignored(f"{push.ref} was deleted")
    before = "" if _is_none(push.before) else push.before
    head = push.head_commit
    sha = head.id if head is not None and head.id and push.ref.startswith("refs/tags/") else push.after
    _check_sha(sha)
    return Change(
        source=Source(
            repository=push.repository.full_name,
            ref=push.ref,
            sha=sha,  # of the commit: an annotated tag is an object of its own, and has no status
            base_sha=before,
            event="push",
            changed_paths=_paths(push),
            actor=_actor(push.sender, push.pusher),
            title=_title(head.message if head is not None else ""),
        ),
        before=before,
        at=_time(push.repository.pushed_at),
    )


def _of_pull_request(event: _PullRequestEvent) -> Change | Ignored:
    asked, number = event.pull_request, event.number
    if event.action not in ACTIONS:
        return Ignored(f"{event.action[:100]} changes nothing that would have to be evaluated")
    if not 0 < number < 2**53:
        raise _misfit("number is no number of a pull request")
    _check(event.repository.full_name, f"refs/pull/{number}/head", asked.base.sha, asked.head.sha)
    return Change(
        source=Source(
            repository=event.repository.full_name,
            ref=f"refs/pull/{number}/head",
            sha=asked.head.sha,
            base_sha=asked.base.sha,
            event="pull_request",
            pull_request=number,
            from_fork=_is_from_fork(asked.head.repo, event.repository),
            actor=_actor(event.sender),
            title=_title(asked.title),
        ),
        before=event.before if _SHA.fullmatch(event.before) else "",
        author=_actor(asked.user),
        at=_time(asked.updated_at),
    )


def _is_from_fork(head: _Repository | None, here: _Repository) -> bool:
    """Whatever is not surely of this very repository is from people who may not see secrets."""
    if head is None:
        return True
    if head.id is not None and here.id is not None:
        return head.id != here.id
    return head.full_name != here.full_name


def _paths(push: _Push) -> tuple[str, ...] | None:
    """What the push has changed; None where the event does not tell all of it."""
    if push.created or push.forced or not push.commits or len(push.commits) >= MAX_COMMITS:
        return None
    found = {path for c in push.commits for path in (*c.added, *c.removed, *c.modified)}
    if len(found) > MAX_PATHS or sum(len(path) for path in found) > MAX_PATHS_BYTES:
        return None
    return tuple(sorted(found))


def _check(repository: str, ref: str, *shas: str) -> None:
    if not _REPOSITORY.fullmatch(repository):
        raise _misfit("repository.full_name is not owner/name")
    if not (ref.startswith("refs/") and len(ref) <= MAX_REF and ref.isprintable()):
        raise _misfit("ref is not refs/…")
    for sha in shas:
        _check_sha(sha)


def _check_sha(sha: str) -> None:
    if not _SHA.fullmatch(sha):
        raise _misfit("a commit is not named by 40 or 64 hex digits")


def _is_none(sha: str) -> bool:
    """How git spells that there is no commit."""
    return not sha.strip("0")


def _time(said: object) -> datetime | None:
    """A time in seconds or in the words of ISO 8601; None for anything else, which no run depends on."""
    try:
        return msgspec.convert(said, datetime, strict=False).astimezone(UTC)
    except (msgspec.ValidationError, ValueError, OverflowError):
        return None


def _title(message: str) -> str:
    return opening(message.strip().partition("\n")[0], MAX_TITLE)


def _actor(*users: _User | None) -> str:
    names = (user.login or user.name for user in users if user is not None)
    return opening(next((name for name in names if name), ""), 100)


T = TypeVar("T")


def _decoded(event: str, body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _misfit(f"{str(error).replace('`', '')} ({event[:100]})") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _misfit("it is not JSON") from None


def _misfit(why: str) -> BadPayload:
    return BadPayload(
        f"The body is not what GitHub documents for its event: {why}.",
        todo="Set the content type of the webhook to application/json; nothing was done.",
        facts={"why": why},
    )
