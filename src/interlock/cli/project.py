"""The project file `interlock.toml`, searched in the current directory and its parents.

    store = "sqlite:///interlock.db"      # relative to this file
    kinds = ["shop.orders"]               # modules that declare kinds of record, for `interlock record`
    middleware = ["shop.context:Tenant"]  # around handlers of workers and before `interlock submit`
    losses = 3                            # how often a job may lose its worker
    tree_quotas = [10, 8, 5, 3, 2, 1]     # workers of one tree of jobs at a time, at each depth

    [worker]
    module = "shop.tasks"
    queues = ["default", "mail"]
    labels = ["gpu"]
    slots = 20

    [durations]
    lease_ttl_s = 120

    [retries.flaky]
    retries = 5

    [[failures]]
    class = "infra"
    exit_codes = [75]

    [limits]
    max_input_bytes = 262144

    [limits.vendor-x]                     # jobs with limits = ["vendor-x"]: five run at the same time
    max = 5

    [limits."tenant:*"]                   # each key has its own slots; also "queue:NAME" and "task:NAME"
    max = 10

    [blobs]
    directory = "blobs"                   # for artifacts; relative to this file
    keep_days = 30

    [schedules.nightly-report]            # submits a job by itself
    cron = "0 2 * * 1-5"
    tz = "Europe/Berlin"
    task = "shop.tasks.report"
    input = { kind = "full" }

    [dead_letters]                        # a job of this task for each job that has no try left
    task = "shop.tasks.alert"
    queue = "default"

    [retention]                           # how long jobs are kept, by their outcome
    completed = "1d"
    failed = "30d"

    [retention.queues.mail]               # and the jobs of one queue
    completed = "1h"

    [quarantine]                          # a runner that keeps losing work is given none
    occasions = 3
    within_s = 3600
    lasts_s = 1800

Webhooks, forks, secrets, environments and reports are described in `project_ci`. `--store`,
INTERLOCK_URL and a profile that is named go before the store in the file; the rest holds in any
case.
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from interlock.cli import profiles
from interlock.cli.project_ci import (
    EdgeSections,
    GithubSection,
    HookSection,
    ReporterSection,
    TriggerSection,
    edges_of,
    faults_of,
    policy_of,
)
from interlock.errors import InvalidLimit, InvalidSchedule, InvalidSettings
from interlock.lifecycles.durations import Durations
from interlock.store.urls import url_of
from interlock.systems.blobs import BlobSettings
from interlock.systems.orchestrator.failures import (
    DEFAULT_LOSSES,
    DEFAULT_RETRIES,
    DEFAULT_RULES,
    FailureClass,
    FailureRule,
)
from interlock.systems.orchestrator.settings import DEFAULT_QUOTAS, DeadLetterSettings
from interlock.systems.orchestrator.vault import Environment, SecretScope
from interlock.systems.quarantine import QuarantineSettings
from interlock.systems.retention import QueueRetention, RetentionSettings
from interlock.systems.settings import Settings
from interlock.text import nearest
from interlock.wire.jobs import JobSpec, RetryRule
from interlock.wire.limits import LimitSpec, check_limit
from interlock.wire.schedules import ScheduleSpec
from interlock.worker.limits import DeclaredLimit
from interlock.worker.schedules import PROJECT, DeclaredSchedule, checked_name, read_schedule

FILE = "interlock.toml"
DEFAULT_URL = "sqlite:///interlock.db"
_SQLITE = "sqlite:///"


class WorkerSection(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults for the workers of this project."""

    module: str | None = None
    name: str | None = None
    queues: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    slots: int | None = None
    executor: str | None = None
    prefetch: int | None = None
    log_level: str | None = None
    job_log_level: str | None = None
    memory_limit_mb: int | None = None
    metrics_port: int | None = None
    isolate: str | None = None
    network: bool | None = None
    mounts: tuple[str, ...] = ()


class RetrySection(msgspec.Struct, frozen=True, kw_only=True):
    """Retry rule of one failure class; omitted fields keep their defaults."""

    retries: int | None = None
    first_pause_s: float | None = None
    factor: float | None = None
    longest_pause_s: float | None = None
    jitter: float | None = None

    def merged_into(self, rule: RetryRule) -> RetryRule:
        """Return the rule with the values of this section."""
        given = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        return msgspec.structs.replace(rule, **given)


class LimitsSection(msgspec.Struct, frozen=True, kw_only=True):
    """Size limits."""

    max_input_bytes: int = Settings().max_input_bytes
    max_result_bytes: int = Settings().max_result_bytes
    max_checkpoint_bytes: int = Settings().max_checkpoint_bytes


JOB_LIMITS = "limits.NAME"
"""Under which name the tables below `[limits]` are read apart from its sizes."""


class ProjectFile(EdgeSections, frozen=True, kw_only=True):
    """The schema of the project file."""

    store: str | None = None
    kinds: tuple[str, ...] = ()
    middleware: tuple[str, ...] = ()
    losses: int = DEFAULT_LOSSES
    tree_quotas: tuple[int, ...] = DEFAULT_QUOTAS
    worker: WorkerSection = WorkerSection()
    durations: Durations = Durations()
    retries: dict[FailureClass, RetrySection] = msgspec.field(default_factory=dict)
    failures: tuple[FailureRule, ...] = ()
    limits: LimitsSection = LimitsSection()
    job_limits: dict[str, LimitSpec] = msgspec.field(name=JOB_LIMITS, default_factory=dict)
    """The tables below `[limits]`, such as `[limits.vendor-x]`."""
    blobs: BlobSettings = BlobSettings()
    dead_letters: DeadLetterSettings = DeadLetterSettings()
    retention: RetentionSettings = RetentionSettings()
    quarantine: QuarantineSettings = QuarantineSettings()
    schedules: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    """Schedules by name: times as in `ScheduleSpec`, and the job as in `JobSpec`."""


_SECTIONS: dict[str, type[msgspec.Struct]] = {
    "worker": WorkerSection,
    "durations": Durations,
    "limits": LimitsSection,
    "blobs": BlobSettings,
    "dead_letters": DeadLetterSettings,
    "retention": RetentionSettings,
    "quarantine": QuarantineSettings,
    "github": GithubSection,
}
_LISTS: dict[str, type[msgspec.Struct]] = {
    "failures": FailureRule,
    "triggers": TriggerSection,
    "hooks": HookSection,
    "reporters": ReporterSection,
}


_WHEN = ScheduleSpec.__struct_fields__[1:]
_NAMED: dict[str, type[msgspec.Struct]] = {"secrets": SecretScope, "environments": Environment}


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a project, as commands need them."""

    url: str
    settings: Settings
    worker: WorkerSection = WorkerSection()
    kinds: tuple[str, ...] = ()
    """Modules and files that declare kinds of record."""
    retention: RetentionSettings = RetentionSettings()
    """Retention of ended records on the server of this project."""
    middleware: tuple[str, ...] = ()
    """Functions and classes as `module:name`, the outermost first."""
    schedules: dict[str, DeclaredSchedule] = msgspec.field(default_factory=dict)
    """Schedules that the file declares, by name."""
    limits: dict[str, DeclaredLimit] = msgspec.field(default_factory=dict)
    """Limits that the file declares, by name."""
    file: Path | None = None
    """The project file, if there is one."""


def load(
    store: str | None = None, *, start: Path | None = None, kinds: Sequence[str] | None = None
) -> Project:
    """Load the project around `start`, by default the current directory.

    `store` and `kinds` take precedence over it.
    """
    file = find_file(start or Path.cwd())
    project = read_file(file) if file else ProjectFile()
    url = url_of(store or os.environ.get("INTERLOCK_URL") or _without_words(project.store, file))
    named = tuple(kinds) if kinds else tuple(_module(name, file) for name in project.kinds)
    return Project(
        url=url,
        settings=_settings(project, file),
        worker=project.worker,
        kinds=named,
        retention=project.retention,
        middleware=tuple(_module(name, file) for name in project.middleware),
        schedules=_schedules(project, file) if file else {},
        limits={name: DeclaredLimit(spec, PROJECT) for name, spec in project.job_limits.items()},
        file=file,
    )


def _without_words(named: str | None, file: Path | None) -> str:
    """Return the URL where neither the command line nor INTERLOCK_URL has one."""
    return profiles.named_url() or _from_file(named, file) or profiles.used_url() or DEFAULT_URL


def find_file(folder: Path) -> Path | None:
    """Return the nearest project file, here or in a parent folder."""
    places = (place / FILE for place in (folder, *folder.parents))
    return next((place for place in places if place.is_file()), None)


def read_file(path: Path) -> ProjectFile:
    """Read a project file; raise for unknown names and invalid values."""
    text = ""
    try:
        text = path.read_text(encoding="utf-8")
        tables = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _bad(path, [_one_line(error) + _line_named(error, text)]) from error
    tables = _with_job_limits(tables)
    if faults := [*_unknown_names(tables), *_unknown_in_limits(tables), *_unknown_in_retention(tables)]:
        raise _bad(path, faults)
    try:
        project = msgspec.convert(tables, ProjectFile)
    except msgspec.ValidationError as error:
        raise _bad(path, [_message_of(error)]) from error
    except InvalidSettings as error:
        raise _bad(path, [error.sentence.rstrip(".")]) from error
    if faults := list(_impossible(project)):
        raise _bad(path, faults)
    return project


def _with_job_limits(tables: dict[str, Any]) -> dict[str, Any]:
    """Return the file with `[limits.NAME]` apart from the sizes of `[limits]`."""
    section = tables.get("limits")
    if not isinstance(section, dict):
        return tables
    named = {name: table for name, table in section.items() if isinstance(table, dict)}
    sizes = {name: size for name, size in section.items() if name not in named}
    return {**tables, "limits": sizes, JOB_LIMITS: named} if named else tables


def _settings(project: ProjectFile, file: Path | None) -> Settings:
    retries = {name: rule.merged_into(DEFAULT_RETRIES[name]) for name, rule in project.retries.items()}
    return Settings(
        durations=project.durations,
        failure_rules=(*project.failures, *DEFAULT_RULES),
        retries={**DEFAULT_RETRIES, **retries},
        losses=project.losses,
        tree_quotas=project.tree_quotas,
        blobs=_blobs(project.blobs, file),
        dead_letters=project.dead_letters,
        quarantine=project.quarantine,
        secrets=policy_of(project),
        runs=edges_of(project),
        **msgspec.structs.asdict(project.limits),
    )


def _schedules(project: ProjectFile, file: Path) -> dict[str, DeclaredSchedule]:
    """Return the schedules of the file.

    All keys that are not about times describe the job.
    """
    made, faults = {}, []
    for name, table in project.schedules.items():
        when = {key: value for key, value in table.items() if key in _WHEN}
        job = {key: value for key, value in table.items() if key not in _WHEN}
        try:
            made[checked_name(name)] = DeclaredSchedule(read_schedule({**when, "job": job}), PROJECT)
        except InvalidSchedule as error:
            faults.append(f"schedules.{name}: {error.sentence.rstrip('.')}")
    if faults:
        raise _bad(file, faults)
    return made


def _blobs(settings: BlobSettings, file: Path | None) -> BlobSettings:
    """Return the settings with a folder that is relative to the project file."""
    if settings.directory is None or file is None:
        return settings
    return msgspec.structs.replace(settings, directory=str(file.parent / settings.directory))


def _from_file(url: str | None, file: Path | None) -> str | None:
    """Return the URL of the project file.

    A relative path of SQLite is resolved from that file, not from the current directory.
    """
    url = None if url is None else url_of(url)
    if url is None or file is None or not url.startswith(_SQLITE) or url.startswith(f"{_SQLITE}/"):
        return url
    return f"{_SQLITE}{file.parent}/{url.removeprefix(_SQLITE)}"


def _module(name: str, file: Path | None) -> str:
    """Return a module as it is, and a file relative to the project file."""
    is_file = name.partition(":")[0].endswith(".py")
    return str(file.parent / name) if is_file and file is not None else name


def _unknown_names(tables: Mapping[str, Any]) -> Iterator[str]:
    """Yield every unknown name.

    A misspelt setting must not be ignored silently.
    """
    yield from _strangers(tables, ProjectFile, "")
    for name, kind in _SECTIONS.items():
        yield from _strangers(tables.get(name), kind, f"{name}.")
    for name, kind in _LISTS.items():
        for each in tables[name] if isinstance(tables.get(name), list) else ():
            yield from _strangers(each, kind, f"{name}.")
    retries = tables.get("retries")
    yield from _strangers(retries, [str(name) for name in DEFAULT_RETRIES], "retries.")
    for name, rule in retries.items() if isinstance(retries, dict) else ():
        yield from _strangers(rule, RetrySection, f"retries.{name}.")
    schedules = tables.get("schedules")
    for name, table in schedules.items() if isinstance(schedules, dict) else ():
        yield from _strangers(table, [*_WHEN, *JobSpec.__struct_fields__], f"schedules.{name}.")
    for section, kind in _NAMED.items():
        for name, table in tables[section].items() if isinstance(tables.get(section), dict) else ():
            yield from _strangers(table, kind, f"{section}.{name}.")
            if not isinstance(table, dict):
                yield f"{section}.{name} has to be a table, [{section}.{name}]; no value is in this file"


def _unknown_in_retention(tables: Mapping[str, Any]) -> Iterator[str]:
    section = tables.get("retention")
    queues = section.get("queues") if isinstance(section, dict) else None
    for name, table in queues.items() if isinstance(queues, dict) else ():
        yield from _strangers(table, QueueRetention, f"retention.queues.{name}.")


def _unknown_in_limits(tables: Mapping[str, Any]) -> Iterator[str]:
    for name, table in tables.get(JOB_LIMITS, {}).items():
        yield from _strangers(table, LimitSpec, f"limits.{name}.")


def _strangers(table: object, known: type[msgspec.Struct] | list[str], path: str) -> Iterator[str]:
    names = known if isinstance(known, list) else [f.encode_name for f in msgspec.structs.fields(known)]
    for name in table if isinstance(table, dict) else ():
        if name not in names:
            guess = nearest(name, names)
            yield f"there is no {path}{name}" + (f", did you mean {path}{guess}" if guess else "")


def _limit_faults(limits: Mapping[str, LimitSpec]) -> Iterator[str]:
    for name, spec in limits.items():
        try:
            check_limit(name, spec)
        except InvalidLimit as error:
            yield error.sentence.rstrip(".")


def _impossible(project: ProjectFile) -> Iterator[str]:
    yield from _limit_faults(project.job_limits)
    if project.losses < 0:
        yield f"losses is {project.losses} and must not be negative"
    if project.worker.slots is not None and project.worker.slots < 1:
        yield f"worker.slots is {project.worker.slots} and must be at least 1"
    for name, size in msgspec.structs.asdict(project.limits).items():
        if size < 1:
            yield f"limits.{name} is {size} and must be at least 1"
    for failure_class, rule in project.retries.items():
        for name, number in msgspec.structs.asdict(rule).items():
            if number is not None and not (math.isfinite(number) and number >= 0):
                yield f"retries.{failure_class}.{name} is {number} and must not be negative"
    yield from _not_positive("blobs", project.blobs)
    if project.blobs.url is not None and project.blobs.directory is not None:
        yield "blobs has a url and a directory; give one of them"
    yield from _not_positive("quarantine", project.quarantine)
    yield from project.retention.faults()
    yield from _bad_quotas(project.tree_quotas)
    yield from _bad_patterns(project)
    yield from faults_of(project)


def _not_positive(section: str, settings: msgspec.Struct) -> Iterator[str]:
    for name, number in msgspec.structs.asdict(settings).items():
        if isinstance(number, int | float) and not (math.isfinite(number) and number > 0):
            yield f"{section}.{name} is {number} and must be more than 0"


def _bad_quotas(quotas: tuple[int, ...]) -> Iterator[str]:
    if len(quotas) != len(DEFAULT_QUOTAS) or not all(quota >= 1 for quota in quotas):
        yield f"tree_quotas has {len(DEFAULT_QUOTAS)} numbers, one for each depth, and each is at least 1"


def _bad_patterns(project: ProjectFile) -> Iterator[str]:
    for pattern in (pattern for rule in project.failures for pattern in rule.patterns):
        try:
            re.compile(pattern)
        except re.error as error:
            yield f"the pattern {pattern!r} is not a regular expression: {error}"


def _message_of(error: msgspec.ValidationError) -> str:
    """Return the message of an invalid value, with its name in the file."""
    message, _, path = str(error).partition(" - at `")
    name = path.rstrip("`").removeprefix("$.")
    what = message.replace("`", "")
    return f"{name}: {what[:1].lower()}{what[1:]}" if name else what


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return " ".join(str(error).split())


def _line_named(error: Exception, text: str) -> str:
    """Return the line that a message names by its number."""
    place = re.search(r"at line (\d+)", str(error))
    lines = text.splitlines()
    return f": {lines[int(place[1]) - 1].strip()}" if place and int(place[1]) <= len(lines) else ""


def _bad(path: Path, faults: list[str]) -> InvalidSettings:
    return InvalidSettings(
        f"{path} cannot be used: " + "; ".join(faults) + ".",
        todo="Correct the file; nothing was done.",
        facts={"file": str(path), "faults": faults},
    )
