"""Make the reference pages of Python (by `python_pages.py`), commands, the configuration and the events."""

from __future__ import annotations

import io
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import click
import msgspec
import typer
from docs import transcripts
from docs.python_pages import python_pages

from interlock.cli import help_pages, profiles, project, project_ci, verify
from interlock.cli.help_pages import WIDEST
from interlock.cli.main import app, main
from interlock.lifecycles import MACHINES, durations, job
from interlock.machine import blueprint_of
from interlock.machine.blueprint import EventSheet
from interlock.machine.draw.markdown import GENERATED, code, markdown_table, prose
from interlock.server.settings import ServerSettings
from interlock.store.postgres import target as postgres
from interlock.store.redis import connections as redis
from interlock.systems.blobs import BlobSettings
from interlock.systems.orchestrator.failures import DEFAULT_RETRIES, FailureRule
from interlock.systems.orchestrator.settings import DeadLetterSettings
from interlock.systems.orchestrator.vault import Environment, SecretScope
from interlock.systems.quarantine import QuarantineSettings
from interlock.systems.retention import QueueRetention, RetentionSettings
from interlock.wire.jobs import RetryRule
from interlock.wire.limits import LimitSpec
from interlock.wire.schedules import ScheduleSpec
from interlock.worker.settings import WorkerSettings

WIDTH = 100

TEXTS = tomllib.loads(Path(__file__).with_name("reference_texts.toml").read_text(encoding="utf-8"))


def reference_pages() -> dict[str, str]:
    """Return the text of each page, by its path below docs/."""
    return {
        **python_pages(),
        **command_pages(),
        "reference/configuration.md": configuration_page(),
        "reference/events.md": events_page(),
    }


# The command line


NOUNS = "reference/command-line"
"""The folder with a page for each noun."""


def command_pages() -> dict[str, str]:
    """Return the pages with the help of every command and a session with it: one page for each noun."""
    root: Any = typer.main.get_command(app)
    shown = {session.words: session.shown for session in transcripts.sessions()}
    nouns = {name: child for name, child in root.commands.items() if getattr(child, "commands", None)}
    lines = [GENERATED, "", "# Command line", "", TEXTS["chapters"]["command_line"].strip()]
    lines += ["", "## Nouns", ""]
    rows = (
        (f"[`interlock {name}`](command-line/{name}.md)", prose(child.help), code(*child.commands))
        for name, child in nouns.items()
    )
    lines += markdown_table(("commands", "meaning", "verbs"), rows)
    for name, child in {"": root, **root.commands}.items():
        if name not in nouns:
            lines += _command(tuple(name.split()), child, shown)
    pages = {f"{NOUNS}.md": _page(lines)}
    for name, child in nouns.items():
        lines = [GENERATED, "", f"# interlock {name}"]
        for words, each in _commands(child, (name,)):
            lines += _command(words, each, shown)
        pages[f"{NOUNS}/{name}.md"] = _page(lines)
    return pages


def verbs() -> list[str]:
    """Return the words of every command, without those that only have commands of their own."""
    root: Any = typer.main.get_command(app)
    found = (pair for name, child in root.commands.items() for pair in _commands(child, (name,)))
    return [" ".join(words) for words, each in found if not getattr(each, "commands", None)]


def help_file() -> str:
    """Return the help of every command as a wide terminal shows it."""
    root: Any = typer.main.get_command(app)
    words = [(), *(each for name, child in root.commands.items() for each, _ in _commands(child, (name,)))]
    own = [each for each in words if each != (verify.NAME,)]  # whose help is in its own distribution
    return _help_pages(own)


def help_file_of_verification() -> str:
    """Return the help of `interlock verify` and its commands, for the distribution that has them."""
    group: Any = typer.main.get_command(verify.commands())
    return _help_pages([words for words, _ in _commands(group, (verify.NAME,))])


def _help_pages(commands: Sequence[tuple[str, ...]]) -> str:
    return help_pages.content_of({each: _printed(*each, "--help") for each in commands})


def _printed(*words: str) -> str:
    with redirect_stdout(io.StringIO()) as printed, mock.patch.dict(os.environ, COLUMNS=str(WIDEST)):
        main(words)
    return printed.getvalue()


def _command(words: tuple[str, ...], command: Any, shown: Mapping[str, Sequence[str]]) -> Iterator[str]:
    whole = ("interlock", *words)
    help_text = command.get_help(_context(command, whole)).rstrip()
    yield from ("", f"## `{' '.join(whole)}`", "", "```text", *help_text.splitlines(), "```")
    if lines := shown.get(" ".join(words)):
        yield from ("", "```console", *lines, "```")


def _commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for name, child in getattr(command, "commands", {}).items():
        if not child.hidden:
            yield from _commands(child, (*words, name))


def _context(command: Any, words: tuple[str, ...]) -> click.Context:
    return click.Context(
        command,
        info_name=" ".join(words),
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        help_option_names=["-h", "--help"],
    )


# Configuration


def configuration_page() -> str:
    """Return the page about `interlock.toml` and the environment."""
    lines = [GENERATED, "", "# Configuration", "", TEXTS["chapters"]["opening"].strip()]
    for section, kind in sections().items():
        lines += ["", f"## `{section}`" if section else "## Top level", "", TEXTS["sections"][section], ""]
        known = [field for field in msgspec.structs.fields(kind) if section or not _is_section(field)]
        if extra := set(TEXTS["settings"][section]) - {field.encode_name for field in known}:
            raise LookupError(
                f"docs/reference_texts.toml describes no setting of {section!r}: {sorted(extra)}"
            )
        rows = [_setting(section, field) for field in known]
        lines += markdown_table(("setting", "default", "unit", "effect"), rows)
        if section == "[durations]":
            lines += _nesting()
        if section == "[retries.CLASS]":
            lines += _retry_defaults()
    lines += [*_store_options(), *_profiles(), *_environment()]
    return _page(lines)


def sections() -> dict[str, type[msgspec.Struct]]:
    """Return the type of each section of `interlock.toml`, by how it is written there."""
    return {
        "": project.ProjectFile,
        "[worker]": project.WorkerSection,
        "[durations]": durations.Durations,
        "[retries.CLASS]": project.RetrySection,
        "[[failures]]": FailureRule,
        "[limits]": project.LimitsSection,
        "[limits.NAME]": LimitSpec,
        "[blobs]": BlobSettings,
        "[dead_letters]": DeadLetterSettings,
        "[retention]": RetentionSettings,
        "[retention.queues.NAME]": QueueRetention,
        "[quarantine]": QuarantineSettings,
        "[github]": project_ci.GithubSection,
        "[[triggers]]": project_ci.TriggerSection,
        "[[hooks]]": project_ci.HookSection,
        "[[reporters]]": project_ci.ReporterSection,
        "[secrets.NAME]": SecretScope,
        "[environments.NAME]": Environment,
        "[schedules.NAME]": ScheduleSpec,
    }


def _is_section(field: msgspec.structs.FieldInfo) -> bool:
    names = [name.strip("[]") for name in sections() if name]
    return any(field.encode_name in (name, name.partition(".")[0]) for name in names)


@cache
def effective_defaults() -> Mapping[tuple[str, str], str]:
    """Return the defaults of settings that are empty in the schema because other code has them.

    Values are as in the file; a text without code marks says what takes the place of the setting.
    """
    worker, kept = WorkerSettings(name="-"), ServerSettings().retention
    rules = DEFAULT_RETRIES.values()
    found: dict[tuple[str, str], Any] = {
        ("", "store"): project.DEFAULT_URL,
        ("[worker]", "queues"): worker.queues,
        ("[worker]", "slots"): worker.concurrency,
        ("[worker]", "prefetch"): worker.prefetch,
        ("[worker]", "log_level"): worker.log_level,
        ("[worker]", "job_log_level"): worker.job_log_level,
        ("[worker]", "isolate"): worker.sandbox.kind,
        ("[worker]", "network"): worker.sandbox.network,
        ("[retention]", "other"): _days(kept.default),
    }
    for state, name in ((job.COMPLETED, "completed"), (job.FAILED, "failed"), (job.CANCELED, "canceled")):
        found["[retention]", name] = _days(kept.of(job.JOB.name, str(state)))
    for name in msgspec.structs.asdict(next(iter(rules))):
        values = {getattr(rule, name) for rule in rules}
        if len(values) == 1:
            found["[retries.CLASS]", name] = values.pop()
    shown = {place: code(_toml(value)) for place, value in found.items()}
    for section, texts in TEXTS["defaults"].items():
        shown |= {(section, name): prose(text) for name, text in texts.items()}
    known = {
        (section, field.encode_name)
        for section, kind in sections().items()
        for field in msgspec.structs.fields(kind)
    }
    if strange := shown.keys() - known:
        raise LookupError(f"docs/reference_texts.toml has defaults of no setting: {sorted(strange)}")
    return shown


def _days(kept: timedelta) -> str:
    return f"{kept.days}d" if kept == timedelta(days=kept.days) else f"{kept.total_seconds():g}s"


def _setting(section: str, field: msgspec.structs.FieldInfo) -> tuple[str, ...]:
    said = TEXTS["settings"].get(section, {}).get(field.encode_name)
    if said is None:
        raise LookupError(f"docs/reference_texts.toml has no text about {field.encode_name} in {section!r}")
    return code(field.encode_name), _default(section, field), said.get("unit", ""), prose(said["effect"])


def _default(section: str, field: msgspec.structs.FieldInfo) -> str:
    if text := effective_defaults().get((section, field.encode_name)):
        return text
    if field.required:
        return "required"
    default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if default is None or default == "":
        return "none"
    return code(_toml(default))


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}" if value < 1e6 else f"{value:.0f}"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, Sequence):
        return f"[{', '.join(_toml(each) for each in value)}]"
    return str(value)


def _nesting() -> Iterator[str]:
    yield from ("", "### Durations nest", "", TEXTS["chapters"]["nesting"].strip(), "")
    for small, word, large in durations.NESTING:
        yield f"- `{small}` is {word} `{large}`"
    yield "- `lease_ttl_s` is more than twice `heartbeat_every_s`"


def _retry_defaults() -> Iterator[str]:
    yield from ("", "Defaults for each class:", "")
    rows = (
        (code(str(name)), *(code(_toml(value)) for value in msgspec.structs.astuple(rule)))
        for name, rule in DEFAULT_RETRIES.items()
    )
    columns = (code(name) for name in RetryRule.__struct_fields__)
    yield from markdown_table(("class", *columns), rows)


def options_of_stores() -> dict[str, dict[str, str]]:
    """Return the options of each store's URL: by its scheme, the default of each, as it is written there."""
    plain = postgres.target_of("postgresql://host/name")
    ours = {name: getattr(plain, name) for name in postgres.OPTIONS}
    written = {name: {True: "on", False: "off"}.get(value, str(value)) for name, value in ours.items()}
    return {"postgresql": written, "redis": dict.fromkeys(redis.OPTIONS, "")}


def _store_options() -> Iterator[str]:
    yield from ("", "## Options of store URLs", "", TEXTS["chapters"]["store_options"].strip(), "")
    texts, known = TEXTS["store_options"], options_of_stores()
    if {scheme: set(said) for scheme, said in texts.items()} != {
        name: set(each) for name, each in known.items()
    }:
        raise LookupError("docs/reference_texts.toml and the stores differ in their [store_options]")
    rows = [
        (
            code(f"{scheme}:"),
            code(name),
            prose(texts[scheme][name]["values"]),
            prose(texts[scheme][name].get("default") or code(default)),
            prose(texts[scheme][name]["effect"]),
        )
        for scheme, defaults in known.items()
        for name, default in defaults.items()
    ]
    yield from markdown_table(("store", "option", "values", "default", "effect"), rows)


def _profiles() -> Iterator[str]:
    yield from ("", "## Profiles of the command line", "", TEXTS["chapters"]["profiles"].strip(), "")
    kinds: dict[str, type[msgspec.Struct]] = {
        "profiles.toml": profiles.Profiles,
        "[profiles.NAME]": profiles.Profile,
    }
    fields = [(name, field) for name, kind in kinds.items() for field in msgspec.structs.fields(kind)]
    rows = [
        (code(name) if name.startswith("[") else "top level", *_setting(name, field))
        for name, field in fields
        if field.encode_name != "profiles"
    ]
    columns = ("section", "setting", "default", "unit", "effect")
    yield from markdown_table(columns, rows)


def _environment() -> Iterator[str]:
    yield from ("", "## Environment variables", "", TEXTS["chapters"]["environment"].strip(), "")
    variables = TEXTS["environment"].items()
    rows = [(code(name), prose(said["by"]), prose(said["effect"])) for name, said in variables]
    yield from markdown_table(("variable", "read by", "effect"), rows)
    surroundings = "\n".join(
        f"- {code(*said['variables'])}: {said['effect']}" for said in TEXTS["surroundings"]
    )
    yield from ("", TEXTS["chapters"]["surroundings"].strip(), "", surroundings)


# Events


def events_page() -> str:
    """Return the page about the events of the machines, and how to follow them."""
    lines = [GENERATED, "", "# Events", "", TEXTS["chapters"]["events"].strip()]
    for machine in MACHINES.values():
        blueprint = blueprint_of(machine)
        name = blueprint.machine
        lines += ["", f"## {name}", "", f"[States and rows](../lifecycles/{name}.md)", ""]
        lines += markdown_table(
            ("event", "kind", "from", "carries", "meaning"), map(_event, blueprint.events)
        )
    return _page(lines)


def _event(event: EventSheet) -> tuple[str, ...]:
    carries = code(*event.payload) if event.payload else ""
    return code(event.name), event.kind, prose(event.by), carries, prose(event.doc)


def _page(lines: Sequence[str]) -> str:
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"
