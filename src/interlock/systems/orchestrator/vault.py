"""Secrets: the source of their values, the jobs that may have them, and how they get into grants.

Why: decisions 0187 and 0292.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

import msgspec

from interlock.errors import NoSecret
from interlock.processes.credentials import ENVIRONMENT
from interlock.processes.credentials import SECRET as PREFIX
from interlock.processes.masks import Mask
from interlock.store.records import Record
from interlock.systems.orchestrator.body import Provenance, decode_body
from interlock.wire.jobs import SHELL
from interlock.wire.runner import Ack, Complete, Failed, Grant, Message

FILE = "INTERLOCK_SECRETS_FILE"
SHORTEST = 4
"""Minimum length; shorter values could not be masked in logs."""


class SecretRequester(msgspec.Struct, frozen=True, kw_only=True):
    """A job that requests secrets."""

    task: str = ""
    queue: str = ""
    origin: Provenance = Provenance()
    checkout: str = ""
    """The secret that it fetches its repository with; its steps do not see it."""


class SecretScope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The jobs that may have a secret. Patterns; `*` matches anything. Empty fields do not limit."""

    repositories: tuple[str, ...] = ()
    environments: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()

    @property
    def limits(self) -> bool:
        """Whether any condition is named."""
        return bool(self.repositories or self.environments or self.tasks or self.queues)

    def fault(self, requester: SecretRequester) -> str:
        """Return why a job may not have the secret; empty when it may."""
        origin = requester.origin
        conditions = (
            ("repository", self.repositories, "" if origin.claimed else origin.repository),
            ("environment", self.environments, origin.environment),
            ("task", self.tasks, requester.task),
            ("queue", self.queues, requester.queue),
        )
        for noun, allowed, value in conditions:
            if allowed and not _matches(value, allowed, any_case=noun == "repository"):
                return f"it is for the {noun} {_or(allowed)}, and {_has(noun, value, origin)}"
        return ""


class Environment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The runs that may use an environment: a place that jobs deploy to."""

    repositories: tuple[str, ...] = ()
    refs: tuple[str, ...] = ()
    approval: bool = False
    """Whether an operator has to approve each run that uses it."""

    def fault(self, origin: Provenance) -> str:
        """Return why a run may not use the environment; empty when it may."""
        if origin.from_fork:
            return "a change from a fork uses no environment"
        conditions = (
            ("repository", self.repositories, "" if origin.claimed else origin.repository),
            ("ref", self.refs, "" if origin.claimed else origin.ref),
        )
        for noun, allowed, value in conditions:
            if allowed and not _matches(value, allowed, any_case=noun == "repository"):
                return f"it is for the {noun} {_or(allowed)}, and {_has(noun, value, origin)}"
        return ""


class SecretPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that may have each secret, without the values."""

    secrets: Mapping[str, SecretScope] = {}
    environments: Mapping[str, Environment] = {}
    clones: frozenset[str] = frozenset()
    """Secrets to fetch repositories with, which no step or task receives."""

    def fault(self, name: str, requester: SecretRequester) -> str:
        """Return why a job may not have a secret; empty if it may."""
        if requester.origin.from_fork:
            return "a change from a fork receives no secrets"
        if name in self.clones and requester.checkout != name:
            return f"it is for fetching the repository; [secrets.{name}] would give it to steps and tasks"
        scope = self.secrets.get(name)
        return (scope.fault(requester) if scope is not None else "") or self.environment_fault(
            requester.origin
        )

    def environment_fault(self, origin: Provenance) -> str:
        """Return why a job may not use its environment, or "" if it may."""
        if not origin.environment:
            return ""
        found = self.environments.get(origin.environment)
        if found is None:
            name = origin.environment
            return f"there is no environment {name}; [environments.{name}] in interlock.toml makes it"
        fault = found.fault(origin)
        return f"the environment {origin.environment} is not for this run: {fault}" if fault else ""

    def naming(self, repositories: Mapping[str, str]) -> SecretPolicy:
        """Return the policy with repositories' secrets, each for its own alone."""
        own: dict[str, tuple[str, ...]] = {}
        for repository, name in repositories.items():
            if name not in self.secrets:
                own[name] = (*own.get(name, ()), repository)
        scopes = {name: SecretScope(repositories=of) for name, of in own.items()}
        clones = self.clones.union(own)
        return msgspec.structs.replace(self, secrets={**self.secrets, **scopes}, clones=clones)


NO_POLICY = SecretPolicy()


def _matches(value: str, patterns: Sequence[str], *, any_case: bool) -> bool:
    if any_case:
        value, patterns = value.lower(), [pattern.lower() for pattern in patterns]
    return bool(value) and any(fnmatchcase(value, pattern) for pattern in patterns)


def _has(noun: str, value: str, origin: Provenance) -> str:
    if value:
        return f"this is {value}"
    if noun in ("repository", "ref") and origin.claimed:
        return "the repository that a submitter claims does not count"
    return f"this job has no {noun}"


def _or(names: Sequence[str]) -> str:
    return " or ".join(names)


class _Checkout(msgspec.Struct, frozen=True):
    secret: str = ""


class _ShellInput(msgspec.Struct, frozen=True):
    checkout: _Checkout = _Checkout()


def checkout_secret(task: str, given: bytes | msgspec.Raw) -> str:
    """Return the secret with which a shell job fetches its repository.

    It is the name of the secret, and is empty for other jobs.
    """
    if task != SHELL:
        return ""
    try:
        return msgspec.json.decode(given, type=_ShellInput).checkout.secret
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


class _Scoped(SecretScope, frozen=True, kw_only=True, forbid_unknown_fields=True):
    value: str


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    secrets: dict[str, str | _Scoped] = {}


class Vault:
    """Reads secrets by name."""

    def __init__(
        self, environment: Mapping[str, str] = ENVIRONMENT, policy: SecretPolicy = NO_POLICY
    ) -> None:
        self._environment = environment
        self._policy = policy
        self._read_at: tuple[str, int, int] | None = None
        self._known: Mapping[str, str | _Scoped] = {}

    def find(self, name: str, requester: SecretRequester) -> str:
        """Return the value of a secret; raise if the job may not have it."""
        known = self._in_file().get(name)
        if known is None and name not in self._policy.secrets and f"{PREFIX}{name}" in self._environment:
            raise _unnamed(name)
        fault = self._policy.fault(name, requester)
        if not fault and isinstance(known, _Scoped):
            fault = known.fault(requester)
        if fault:
            raise NoSecret(
                f"The secret {name} is not for this job: {fault}.",
                todo=f"Change [secrets.{name}] in interlock.toml where the orchestrator runs, or the job.",
                facts={"secret": name, "why": fault, "queue": requester.queue, "task": requester.task},
            )
        return self.value(name)

    def values(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the values of known secrets, without a check, to mask them."""
        found = []
        for name in names:
            with suppress(NoSecret):
                found.append(self.value(name))
        return tuple(found)

    def value(self, name: str) -> str:
        """Return the value of a secret for this process itself, without a check."""
        known = self._in_file().get(name)
        value = known.value if isinstance(known, _Scoped) else known
        if value is None:
            value = self._environment.get(f"{PREFIX}{name}")
        if value is None:
            raise NoSecret(
                f"There is no secret {name}.",
                todo=f"Set {PREFIX}{name} where the orchestrator runs and name it in interlock.toml "
                f"([secrets.{name}]), or put it into its file of secrets.",
                facts={"secret": name},
            )
        if len(value) < SHORTEST:
            raise NoSecret(
                f"The secret {name} is shorter than {SHORTEST} characters: it could not be kept out of logs.",
                todo="Give it a longer value.",
                facts={"secret": name},
            )
        return value

    def warnings(self) -> Iterator[str]:
        """Yield warnings, by name, of secrets that all jobs may have, or none."""
        try:
            known = self._in_file()
        except NoSecret as error:
            yield f"{error.sentence} {error.todo}"
            return
        scopes = self._policy.secrets
        for name, secret in known.items():
            own = isinstance(secret, _Scoped) and secret.limits
            if not own and not (name in scopes and scopes[name].limits):
                yield f"the secret {name} is given to every job that names it; [secrets.{name}] limits that"
        variables = sorted(each.removeprefix(PREFIX) for each in self._environment if each.startswith(PREFIX))
        for name in variables:
            if name not in scopes and name not in known:
                yield f"{PREFIX}{name} is given to no job; [secrets.{name}] in interlock.toml would name some"

    def _in_file(self) -> Mapping[str, str | _Scoped]:
        path = self._environment.get(FILE)
        return self._read(Path(path)) if path else {}

    def _read(self, path: Path) -> Mapping[str, str | _Scoped]:
        try:
            with path.open("rb") as file:
                found = os.fstat(file.fileno())
                if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                    raise _unusable(path, "other users may read or write it", f"chmod 600 {path}")
                version = (str(path), found.st_mtime_ns, found.st_size)
                if version != self._read_at:
                    self._known = msgspec.convert(tomllib.load(file), _File).secrets
                    self._read_at = version
        except OSError as error:
            raise _unusable(path, str(error.strerror), f"Make it readable, or unset {FILE}.") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError):
            # Unreadable text may be a secret, so it is not repeated.
            todo = 'Write it as [secrets], NAME = "value".'
            raise _unusable(path, "its format is invalid", todo) from None
        return self._known


def _unusable(path: Path, why: str, todo: str) -> NoSecret:
    return NoSecret(f"The file of secrets {path} is not used: {why}.", todo=todo, facts={"file": str(path)})


def _unnamed(name: str) -> NoSecret:
    return NoSecret(
        f"The secret {name} is set where the orchestrator runs, but no rule names the jobs that may have it.",
        todo=f'Write into interlock.toml there: [secrets.{name}] and below it repositories = ["owner/name"], '
        "environments, tasks or queues; the table alone gives it to every job that names it.",
        facts={"secret": name},
    )


class GrantsWithSecrets(msgspec.Struct, frozen=True):
    """The grants with secrets, and messages about the others."""

    grants: list[Grant]
    messages: list[list[Message]]


NO_ORIGIN = Provenance()


def with_secrets(
    grants: Sequence[Grant], runner_id: str, vault: Vault, origins: Mapping[str, Provenance]
) -> GrantsWithSecrets:
    """Fill in the values of secrets.

    An attempt whose secrets are unavailable fails at once, with the reason. `origins` has the provenance of
    each job, from its record; a grant does not have it.
    """
    given: list[Grant] = []
    messages: list[list[Message]] = []
    for grant in grants:
        origin = origins.get(grant.job_id, NO_ORIGIN)
        checkout = checkout_secret(grant.task, grant.input)
        requester = SecretRequester(task=grant.task, queue=grant.queue, origin=origin, checkout=checkout)
        try:
            values = {name: vault.find(name, requester) for name in grant.secrets}
        except NoSecret as error:
            messages.append(_failure(grant, runner_id, error))
        else:
            given.append(msgspec.structs.replace(grant, secrets=values) if values else grant)
    return GrantsWithSecrets(given, messages)


def redacted(message: Message, record: Record, vault: Vault) -> Message:
    """Return the message without the secrets of its job.

    The body of the record names them. Workers mask their reports, but runners in other languages may not.
    """
    failed = isinstance(message, Complete) and isinstance(message.outcome, Failed)
    if not (message.log or failed):
        return message
    body = decode_body(record.body)
    if body.secrets_withheld or not (mask := _mask_of(vault.values(body.secrets))).forms:
        return message
    lines = tuple(msgspec.structs.replace(line, text=mask.blanked(line.text)) for line in message.log)
    clean = msgspec.structs.replace(message, log=lines)
    if isinstance(clean, Complete) and isinstance(clean.outcome, Failed):
        outcome = clean.outcome
        error, details = mask.blanked(outcome.error), mask.blanked(outcome.details)
        clean = msgspec.structs.replace(
            clean, outcome=msgspec.structs.replace(outcome, error=error, details=details)
        )
    return clean


@lru_cache(maxsize=64)
def _mask_of(values: tuple[str, ...]) -> Mask:
    return Mask({str(number): value for number, value in enumerate(values)})


def _failure(grant: Grant, runner_id: str, error: NoSecret) -> list[Message]:
    failed = Failed(error=error.sentence, details=error.todo, failure_class="tooling")
    messages: list[Message] = [Complete(token=grant.token, runner_id=runner_id, outcome=failed)]
    return messages if grant.acknowledged else [Ack(token=grant.token, runner_id=runner_id), *messages]
