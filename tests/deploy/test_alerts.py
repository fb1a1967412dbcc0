"""The alert rules: each names metrics that there are, fires in its trouble only, and has a runbook."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pytest
from tests.deploy.files import DEPLOY, GUIDE, ROOT, commands_in, documents
from tests.server import promql
from tests.server.promql import Scrape, scrape

from interlock.lifecycles import MACHINES
from interlock.server.metrics import CAP

(RULES,) = documents(DEPLOY / "prometheus" / "alerts.yaml")
ALERTS = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}
SITE, PAGE = "https://docs.example.org/main", "guides/running-in-production.html"
TEXT = GUIDE.read_text(encoding="utf-8")
STATES = {name: {str(state) for state in machine.states} for name, machine in MACHINES.items()}
LOOPS = set(
    re.findall(r'\bLoop\(\s*"(\w+)"', (ROOT / "src/interlock/server/parts.py").read_text(encoding="utf-8"))
)


def unknown_values(query: str) -> list[str]:
    """Machines, states and loops of a query that the tables do not know."""
    found = []
    for selector in promql.selectors(query):
        labels = {one.name: one.value.split("|") for one in selector.matchers.matchers}
        machines = labels.get("machine", [])
        found += [f"no machine {name}" for name in machines if name not in STATES]
        states = {state for name in machines for state in STATES.get(name, ())}
        named = [state for label in ("state", "from_state", "to_state") for state in labels.get(label, ())]
        found += [f"no state {state} of {', '.join(machines)}" for state in named if state not in states]
        found += [f"no loop {name}" for name in labels.get("loop", ()) if name not in LOOPS]
    return found


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_names_metrics_labels_and_states_that_there_are(name: str) -> None:
    query = ALERTS[name]["expr"]
    assert promql.faults_of(query) + unknown_values(query) == []


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ('interlock_records{machine="jobs"}', "no machine jobs"),
        ('interlock_records{machine="job", state="WAITING"}', "no state WAITING of job"),
        ('interlock_records{machine=~"lease|worker", state="LOST"}', "no state LOST of lease, worker"),
        ('interlock_loop_rounds{loop="sweep"}', "no loop sweep"),
    ],
)
def test_a_state_or_loop_that_is_renamed_is_found_out(query: str, fault: str) -> None:
    assert unknown_values(query) == [fault]


# What Prometheus reads besides the query

DURATION = re.compile(
    r"0|(?=[0-9])([0-9]+y)?([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?", re.ASCII
)
"""A duration as Prometheus writes it: numbers with units, the largest unit first, each unit once."""
TEMPLATE = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}", re.S)
VALUE = re.compile(r"\$value|\$labels\.([a-zA-Z_][a-zA-Z0-9_]*)")
FORMATS = frozenset({"humanize", "humanize1024", "humanizeDuration", "humanizePercentage", "title"})
"""Functions of templates that take one value."""


def unknown_durations(rule: Mapping[str, Any]) -> list[str]:
    """Durations of a rule that Prometheus does not read."""
    given = {name: rule[name] for name in ("for", "keep_firing_for") if name in rule}
    return [f"{name}: {text!r}" for name, text in given.items() if not DURATION.fullmatch(str(text))]


def faults_of_templates(rule: Mapping[str, Any], results: Sequence[promql.Labels]) -> list[str]:
    """Templates of a rule that Prometheus does not know, and labels that some result of its query lacks."""
    faults = []
    for text in (*rule["annotations"].values(), *rule["labels"].values()):
        if "{{" in TEMPLATE.sub("", text) or "}}" in TEMPLATE.sub("", text):
            faults.append(f"{text}: the braces do not match")
        for template in TEMPLATE.findall(text):
            value, *formats = (part.strip() for part in template.split("|"))
            found = VALUE.fullmatch(value)
            if found is None or not FORMATS.issuperset(formats):
                faults.append(f"{template}: not a value or a label")
            elif found[1] and not all(found[1] in dict(labels) for labels in results):
                faults.append(f"{template}: the result has no such label")
    return faults


def results_of(name: str) -> list[promql.Labels]:
    """Return the labels of each alert that fires in the troubles of a rule."""
    troubles = [scrapes({**HEALTHY, **trouble}) for alert, trouble in TROUBLES if alert == name]
    return [labels for pages in troubles for labels in promql.answer(ALERTS[name]["expr"], pages)]


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_durations_and_templates_that_prometheus_reads(name: str) -> None:
    assert unknown_durations(ALERTS[name]) == []
    assert results_of(name)
    assert faults_of_templates(ALERTS[name], results_of(name)) == []


def test_groups_have_no_setting_that_is_not_looked_at() -> None:
    assert [set(group) for group in RULES["groups"]] == [{"name", "rules"}]


@pytest.mark.parametrize("text", ["0", "5m", "1h30m", "90s", "1d12h", "1w", "500ms", "1y2w3d4h5m6s7ms"])
def test_a_duration_of_prometheus_is_read(text: str) -> None:
    assert unknown_durations({"for": text}) == []


@pytest.mark.parametrize("text", ["5 minutes", "5", 5, "", "m", "30m1h", "5m5m", "1.5h", "-5m", "5M", "5m "])
def test_a_duration_that_prometheus_refuses_is_found_out(text: object) -> None:
    assert unknown_durations({"for": text}) == [f"for: {text!r}"]


@pytest.mark.parametrize(
    ("summary", "fault"),
    [
        ("Jobs of {{ $labels.queues }} wait.", "$labels.queues: the result has no such label"),
        ("Jobs of {{ $labels.instance }} wait.", "$labels.instance: the result has no such label"),
        ("Jobs of {{ labels.queue }} wait.", "labels.queue: not a value or a label"),
        ("{{ $value | humanise }} jobs wait.", "$value | humanise: not a value or a label"),
        ("{{ $values }} jobs wait.", "$values: not a value or a label"),
        ("{{ $value } jobs wait.", "{{ $value } jobs wait.: the braces do not match"),
    ],
)
def test_a_template_that_shows_nothing_is_found_out(summary: str, fault: str) -> None:
    name = "InterlockOldestJobTooOld"
    rule = {**ALERTS[name], "annotations": {"summary": summary}}
    assert faults_of_templates(rule, results_of(name)) == [fault]
    good = {**rule, "annotations": {"summary": "{{ $labels.queue }}: {{ $value | humanizeDuration }}"}}
    assert faults_of_templates(good, results_of(name)) == []


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_a_severity_a_summary_and_a_link_to_its_runbook_section(name: str) -> None:
    rule = ALERTS[name]
    assert set(rule) - {"for"} == {"alert", "expr", "labels", "annotations"}
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"]["summary"].endswith(".")
    assert rule["annotations"]["runbook_url"] == f"{SITE}/{PAGE}#{name.lower()}"


def test_the_runbook_urls_lead_to_the_page_that_the_site_has_and_the_guide_says_how_to_set_their_host() -> (
    None
):
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "site_dir: .site/main\n" in settings
    assert "use_directory_urls: false" in settings, "pages end in .html"
    assert GUIDE.relative_to(ROOT / "docs").with_suffix(".html").as_posix() == PAGE
    (command,) = re.findall(r"^(sed -i 's#.*#' alerts\.yaml)$", TEXT, re.M)
    changed = command.split("#")[1]
    assert changed == SITE.removesuffix("/main")


def runbook_of(name: str) -> str:
    found = re.search(rf"^### {name}\n(.*?)(?=^#|\Z)", TEXT, re.S | re.M)
    assert found, f"{name} has no runbook in {GUIDE.name}"
    return found[1]


@pytest.mark.parametrize("name", ALERTS)
def test_every_runbook_has_sections_for_meaning_diagnosis_and_remedy_with_commands(name: str) -> None:
    runbook = runbook_of(name)
    assert [word for word in ("**Means.**", "**Look.**", "**Do.**") if word not in runbook] == []
    assert list(commands_in("\n".join(re.findall(r"^```sh\n(.*?)^```$", runbook, re.S | re.M))))


def test_every_runbook_has_its_alert() -> None:
    assert set(re.findall(r"^### (Interlock\w+)$", TEXT, re.M)) == set(ALERTS)


def test_the_largest_count_of_the_rules_is_where_counting_stops() -> None:
    assert f">= {CAP}" in ALERTS["InterlockBacklogGrows"]["expr"]


# Which trouble makes which alert fire

Numbers: TypeAlias = Mapping[str, tuple[float, float] | None]
"""A series, and what it says in the first and in the second scrape; None: it is not there."""

PENDING = 'interlock_records{machine="job",state="PENDING"}'
IDLE = 'interlock_records{machine="worker",state="IDLE"}'
STARTED = 'interlock_transitions_total{machine="job",from_state="PENDING",to_state="RUNNING"}'
ROUNDS = 'interlock_loop_rounds{loop="deadlines"}'
FAILURES = 'interlock_loop_failures_in_a_row{loop="deadlines"}'
OLDEST = 'interlock_queue_oldest_ready_seconds{queue="mail"}'
SLOTS = 'interlock_queue_slots{queue="mail"}'
FINE = 'interlock_http_requests_total{method="GET",route="/api/jobs",status="200"}'
ERRORS = 'interlock_http_requests_total{method="GET",route="/api/jobs",status="503"}'
FAILED = 'interlock_transitions_total{machine="job",from_state="RUNNING",to_state="FAILED"}'
EXPIRED = 'interlock_transitions_total{machine="lease",from_state="ACTIVE",to_state="EXPIRED"}'
WRITTEN_OFF = 'interlock_transitions_total{machine="worker",from_state="IDLE",to_state="TERMINATED"}'

HEALTHY: Numbers = {
    PENDING: (5, 3),
    IDLE: (2, 2),
    STARTED: (100, 200),
    ROUNDS: (10, 20),
    FAILURES: (0, 0),
    OLDEST: (4, 2),
    SLOTS: (10, 10),
    FINE: (100, 200),
    ERRORS: (1, 1),
    FAILED: (4, 4),
    EXPIRED: (1, 1),
}
TROUBLES: list[tuple[str, Numbers]] = [
    ("InterlockServerDown", dict.fromkeys(HEALTHY)),
    ("InterlockQueueWithoutWorkers", {SLOTS: (0, 0)}),
    ("InterlockBacklogGrows", {PENDING: (200, 900)}),
    ("InterlockBacklogGrows", {PENDING: (CAP, CAP)}),
    ("InterlockOldestJobTooOld", {OLDEST: (301, 361)}),
    ("InterlockWorkersSilent", {EXPIRED: (1, 2)}),
    ("InterlockDeadlinesMissed", {ROUNDS: (10, 10)}),
    ("InterlockDeadlinesMissed", {FAILURES: (2, 3)}),
    ("InterlockStoreErrors", {FAILURES: (2, 3)}),
    ("InterlockStoreErrors", {ERRORS: (1, 51)}),
    ("InterlockDeadLetters", {FAILED: (4, 5)}),
]


def scrapes(numbers: Numbers, servers: int = 1) -> list[Scrape]:
    """Two scrapes of servers that all say the same."""
    pages = []
    for turn in range(2):
        lines = [f"{series} {both[turn]}" for series, both in numbers.items() if both is not None]
        pages.append(scrape(60.0 * turn, *["\n".join(lines) + "\n"] * servers))
    return pages


def firing(pages: list[Scrape]) -> set[str]:
    return {name for name, rule in ALERTS.items() if promql.answer(rule["expr"], pages)}


def test_nothing_fires_while_all_is_well() -> None:
    assert firing(scrapes(HEALTHY)) == set()
    assert firing(scrapes({**HEALTHY, PENDING: (0, 0), STARTED: (9, 9)})) == set(), "nothing is asked for"
    assert firing(scrapes({**HEALTHY, OLDEST: (0, 0), SLOTS: (0, 0)})) == set(), (
        "no job of that queue is ready"
    )
    assert firing(scrapes({**HEALTHY, SLOTS: None})) == set(), "there are too many workers to look at"


def test_an_alert_names_the_queue() -> None:
    pages = scrapes({**HEALTHY, OLDEST: (301, 361), SLOTS: (0, 0)})
    queue = frozenset({("queue", "mail")})
    for name in ("InterlockOldestJobTooOld", "InterlockQueueWithoutWorkers"):
        assert set(promql.answer(ALERTS[name]["expr"], pages)) == {queue}
        assert "$labels.queue" in ALERTS[name]["annotations"]["summary"]


@pytest.mark.parametrize(("name", "trouble"), TROUBLES)
def test_an_alert_fires_in_its_trouble(name: str, trouble: Numbers) -> None:
    assert name in firing(scrapes({**HEALTHY, **trouble}))


def test_every_alert_was_made_to_fire() -> None:
    assert {name for name, _ in TROUBLES} == set(ALERTS)


@pytest.mark.parametrize(
    ("name", "series"), [("InterlockDeadLetters", FAILED), ("InterlockWorkersSilent", WRITTEN_OFF)]
)
def test_the_first_event_of_its_kind_is_noticed(name: str, series: str) -> None:
    before, after = scrapes({**HEALTHY, series: None}), scrapes({**HEALTHY, series: (1, 1)})
    assert firing([before[0], after[1]]) == {name}


def test_two_servers_count_once() -> None:
    query: Any = ALERTS["InterlockDeadLetters"]["expr"]
    pages = scrapes({**HEALTHY, FAILED: (4, 7)}, servers=2)
    assert promql.answer(query, pages) == {frozenset(): 3.0}
