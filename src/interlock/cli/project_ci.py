"""Sections of a project file about webhooks, forks, secrets, environments and reports.

    public_url = "https://ci.example.org"

    [github]
    webhook_secret_env = "INTERLOCK_GITHUB_WEBHOOK_SECRET"
    webhook_secret_file = "/run/secrets/github-webhook"

    [[triggers]]                              # the first that fits decides
    repository = "acme/*"
    events = ["push", "pull_request"]
    refs = ["refs/heads/*", "refs/pull/*"]
    workflow = "ci"
    forks = "approve"                         # an operator approves each commit; or "trust", or "never"
    trusted = ["octocat"]                     # accounts whose changes from forks need no approval
    fork_queue = "untrusted"                  # where all jobs of forks wait
    fork_labels = []                          # and what their runners must have

    [secrets.DEPLOY_KEY]                      # which jobs may have it; every condition must hold
    repositories = ["acme/shop"]
    environments = ["production"]

    [environments.production]                 # what jobs name as `environment`
    repositories = ["acme/shop"]
    refs = ["refs/heads/main", "refs/tags/v*"]
    approval = true                           # an operator approves each run

    [[hooks]]                                 # POST /api/webhooks/generic/deploy
    name = "deploy"
    secret_env = "DEPLOY_HOOK_SECRET"
    workflow = "deploy"
    planner = "flow"
    definition = "shop.flows:deploy"
    fields = { "source.sha" = "commit.id", "inputs.target" = "target?" }

    [[reporters]]
    kind = "github"
    token_env = "INTERLOCK_GITHUB_TOKEN"

    [[reporters]]
    kind = "webhook"
    name = "team"
    url = "https://hooks.example.org/ci"
    secret_env = "TEAM_HOOK_SECRET"

Secrets are never in the file: it names the variable or the file that holds them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from interlock.store.validation import MAX_ID, MAX_LABEL, MAX_LABELS
from interlock.systems.orchestrator.submission import SECRET
from interlock.systems.orchestrator.vault import Environment, SecretPolicy, SecretScope
from interlock.systems.runs.settings import (
    API,
    CONTEXT,
    GithubReporting,
    ReportingSettings,
    RunSettings,
    Statuses,
    WebhookReporting,
)
from interlock.systems.runs.trigger_events import (
    MAX_BODY_BYTES,
    Evaluation,
    Forks,
    Hook,
    Rule,
    TriggerSettings,
    unknown_targets,
)
from interlock.systems.runs.webhook_security import Secret, networks, secret_texts, signing_keys

_WEBHOOK_SECRET = "INTERLOCK_GITHUB_WEBHOOK_SECRET"
_TOKEN = "INTERLOCK_GITHUB_TOKEN"
_ACCOUNT = re.compile(r"[\w-]{1,100}(\[bot\])?", re.ASCII)


class GithubSection(msgspec.Struct, frozen=True, kw_only=True):
    """Webhooks of GitHub."""

    webhook_secret_env: str = _WEBHOOK_SECRET
    webhook_secret_file: str = ""
    max_body_bytes: int = MAX_BODY_BYTES


class TriggerSection(Evaluation, frozen=True, kw_only=True):
    """A rule that selects the changes to evaluate, and how."""

    repository: str = "*"
    events: tuple[Literal["push", "pull_request"], ...] = ("push", "pull_request")
    refs: tuple[str, ...] = ("refs/heads/*", "refs/pull/*")
    forks: bool | Forks = "approve"
    trusted: tuple[str, ...] = ()
    fork_queue: str = "untrusted"
    fork_labels: tuple[str, ...] = ()


class HookSection(Evaluation, frozen=True, kw_only=True):
    """A webhook of another system."""

    name: str
    secret_env: str = ""
    secret_file: str = ""
    takes: Literal["event", "run"] = "event"
    fields: dict[str, str] = msgspec.field(default_factory=dict)
    tolerance_s: float = 300.0


class ReporterSection(msgspec.Struct, frozen=True, kw_only=True):
    """A reporter: a receiver of notifications about runs."""

    kind: Literal["github", "webhook"]
    name: str = ""
    repository: str = "*"
    token_env: str = _TOKEN
    token_file: str = ""
    api: str = API
    context: str = CONTEXT
    statuses: Statuses = "workflow"
    check: bool = False
    url: str = ""
    secret_env: str = ""
    secret_file: str = ""
    words: tuple[
        Literal["awaiting_approval", "pending", "running", "success", "failed", "canceled", "timeout"], ...
    ] = (
        "success",
        "failed",
        "canceled",
        "timeout",
    )
    allow: tuple[str, ...] = ()


class EdgeSections(msgspec.Struct, frozen=True, kw_only=True):
    """All sections about webhooks, secrets and reports."""

    public_url: str = ""
    github: GithubSection = GithubSection()
    triggers: tuple[TriggerSection, ...] = ()
    hooks: tuple[HookSection, ...] = ()
    reporters: tuple[ReporterSection, ...] = ()
    secrets: dict[str, SecretScope] = {}
    environments: dict[str, Environment] = {}


def policy_of(sections: EdgeSections) -> SecretPolicy:
    """Return the policy that says which jobs may have which secrets."""
    return SecretPolicy(secrets=sections.secrets, environments=sections.environments)


def edges_of(sections: EdgeSections, environment: Mapping[str, str] = os.environ) -> RunSettings:
    """Return the settings, with those secrets that this process has."""
    secrets = _Secrets(environment)
    github = sections.github
    rules = tuple(_rule(each) for each in sections.triggers)
    hooks = tuple(_hook(each, secrets) for each in sections.hooks)
    tokens = secrets.texts("GitHub's webhooks", github.webhook_secret_env, github.webhook_secret_file)
    if rules and not tokens:
        secrets.lacking.append("webhooks of GitHub are refused: there is no secret for them")
    return RunSettings(
        triggers=TriggerSettings(
            github_secrets=tokens, rules=rules, hooks=hooks, max_body_bytes=github.max_body_bytes
        ),
        reporting=ReportingSettings(
            github=tuple(_github(each, secrets) for each in sections.reporters if each.kind == "github"),
            webhooks=tuple(_webhook(each, secrets) for each in sections.reporters if each.kind == "webhook"),
            public_url=sections.public_url,
        ),
        lacking=tuple(secrets.lacking),
    )


def faults_of(sections: EdgeSections) -> Iterator[str]:
    """Yield every contradiction in the sections."""
    names = [hook.name for hook in sections.hooks]
    for hook in sections.hooks:
        if not hook.name or names.count(hook.name) > 1 or "/" in hook.name:
            yield f"hooks.name is {hook.name!r}, and must be a name of its own"
        if not (hook.secret_env or hook.secret_file):
            yield f"hook {hook.name} names no secret_env and no secret_file"
        for target in unknown_targets(hook.fields):
            yield f"hook {hook.name}: {target} is not a field of a run"
    for rule in sections.triggers:
        yield from _fork_faults(rule)
    yield from _secret_faults(sections)
    for one in sections.reporters:
        yield from _reporter_faults(one)
    for name, url in (
        ("public_url", sections.public_url),
        *((r.kind, r.url or r.api) for r in sections.reporters),
    ):
        if url and urlsplit(url).scheme not in ("http", "https"):
            yield f"{name}: {url!r} is not http(s)://…"


def _fork_faults(rule: TriggerSection) -> Iterator[str]:
    what = f"triggers.repository {rule.repository}"
    for name in rule.trusted:
        if not _ACCOUNT.fullmatch(name):
            yield f'{what}: trusted names {name!r}, and is a list of accounts; forks = "trust" trusts all'
    if rule.forks in (False, "never") and rule.trusted:
        yield f"{what}: forks are never evaluated, so trusted has no effect"
    if not (1 <= len(rule.fork_queue) <= MAX_ID and rule.fork_queue.isprintable()):
        yield f"{what}: fork_queue has 1 to {MAX_ID} printable characters"
    if len(rule.fork_labels) > MAX_LABELS or not all(
        1 <= len(label) <= MAX_LABEL and label.isprintable() for label in rule.fork_labels
    ):
        yield f"{what}: fork_labels are at most {MAX_LABELS}, of 1 to {MAX_LABEL} printable characters"


def _secret_faults(sections: EdgeSections) -> Iterator[str]:
    for name, scope in sections.secrets.items():
        if not SECRET.fullmatch(name):
            yield f"secrets.{name}: that cannot be the name of a secret, which is a variable like NPM_TOKEN"
        for one in scope.environments:
            if not any(fnmatchcase(each, one) for each in sections.environments):
                yield f"secrets.{name}.environments names {one}, and there is no [environments.{one}]"


def _reporter_faults(one: ReporterSection) -> Iterator[str]:
    if one.kind == "webhook" and not (one.name and one.url and (one.secret_env or one.secret_file)):
        yield f"reporter {one.name}: a webhook needs a name, a url, and secret_env or secret_file"
    try:
        networks(one.allow)
    except ValueError as error:
        yield f"reporter {one.name}: {error}"


class _Secrets:
    """Reads secrets, and collects the missing ones."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.lacking: list[str] = []

    def texts(self, what: str, variable: str, file: str, todo: str = "") -> tuple[Secret, ...]:
        return secret_texts(what, variable=variable, file=file, todo=todo, environment=self._environment)

    def keys(self, what: str, variable: str, file: str, otherwise: str) -> tuple[Secret, ...]:
        found = signing_keys(what, variable=variable, file=file, environment=self._environment)
        if not found:
            self.lacking.append(f"{what} {otherwise}: there is no secret for it")
        return found


def _evaluation(section: Evaluation) -> Evaluation:
    """Return the evaluation without what else the section says."""
    return Evaluation(**{name: getattr(section, name) for name in Evaluation.__struct_fields__})


def _rule(section: TriggerSection) -> Rule:
    forks = section.forks
    if isinstance(forks, bool):
        forks = "approve" if forks else "never"
    return Rule(
        run=_evaluation(section),
        repository=section.repository,
        events=section.events,
        refs=section.refs,
        forks=forks,
        trusted=section.trusted,
        fork_queue=section.fork_queue,
        fork_labels=section.fork_labels,
    )


def _hook(section: HookSection, secrets: _Secrets) -> Hook:
    return Hook(
        name=section.name,
        keys=secrets.keys(f"the hook {section.name}", section.secret_env, section.secret_file, "is refused"),
        takes=section.takes,
        run=_evaluation(section),
        fields=section.fields,
        tolerance_s=section.tolerance_s,
    )


def _github(section: ReporterSection, secrets: _Secrets) -> GithubReporting:
    name = section.name or "github"
    todo = "Put the whole token there: GitHub shows it once, under Settings → Developer settings."
    tokens = secrets.texts(f"the reporter {name}", section.token_env, section.token_file, todo)
    if not tokens:
        secrets.lacking.append(f"the reporter {name} is left to other processes: there is no token for it")
    return GithubReporting(
        name=name,
        token=tokens[0] if tokens else None,
        api=section.api,
        context=section.context,
        statuses=section.statuses,
        check=section.check,
        repository=section.repository,
    )


def _webhook(section: ReporterSection, secrets: _Secrets) -> WebhookReporting:
    return WebhookReporting(
        name=section.name,
        url=section.url,
        keys=secrets.keys(
            f"the reporter {section.name}",
            section.secret_env,
            section.secret_file,
            "is left to other processes",
        ),
        words=section.words,
        repository=section.repository,
        allow=section.allow,
    )
