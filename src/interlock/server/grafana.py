"""The Grafana dashboard, made from the table of metrics; `make docs` writes it to docs/grafana/.

Every server counts the whole journal and all records: of several servers the largest value is taken, never
the sum. Values of a single server or worker are added up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from interlock.lifecycles import attempt, job, task
from interlock.lifecycles.attempt import ATTEMPT
from interlock.lifecycles.job import JOB
from interlock.lifecycles.run import RUN
from interlock.lifecycles.worker import WORKER
from interlock.wire import metrics as table
from interlock.wire.metrics import Metric

_MACHINES = 'machine=~"$machine"'


@dataclass(frozen=True, slots=True)
class PromQuery:
    """One query of Prometheus, and the legend of its lines."""

    ask: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel."""

    title: str
    says: str
    queries: tuple[PromQuery, ...]
    unit: str = "short"


@dataclass(frozen=True, slots=True)
class PanelRow:
    """A row of panels."""

    title: str
    panels: tuple[Panel, ...]


def _rate(metric: Metric, *, only: str = "", part: str = "") -> str:
    return f"rate({metric.name}{part}{'{' + only + '}' if only else ''}[$__rate_interval])"


def _grouped_by(labels: Sequence[str], expression: str, *, take: str = "sum") -> str:
    return f"{take} by ({', '.join(labels)}) ({expression})"


def _maximum_of_servers(metric: Metric, labels: Sequence[str], only: str = "") -> str:
    """Return the query for the maximum of a metric over all servers.

    Every server counts this metric.
    """
    rate = _rate(metric, only=only)
    one = rate if set(labels) == set(metric.labels) else _grouped_by(("instance", *labels), rate)
    return _grouped_by(labels, one, take="max")


def _slowest(metric: Metric, labels: Sequence[str], only: str = "", *, take: str = "sum") -> str:
    """Return the query of the 95th percentile."""
    buckets = _grouped_by(("le", *labels), _rate(metric, only=only, part="_bucket"), take=take)
    return f"histogram_quantile(0.95, {buckets})"


def _one_of(label: str, values: Sequence[object]) -> str:
    return f'{label}=~"{"|".join(str(value) for value in values)}"'


def _now(machine: str) -> PromQuery:
    return PromQuery(
        _grouped_by(("state",), f'{table.RECORDS.name}{{machine="{machine}"}}', take="max"), "{{state}}"
    )


_REPEATED = 'outcome="repeated"'
_HITS = PromQuery(
    f"sum({_rate(table.REQUEST_IDS, only=_REPEATED)}) / sum({_rate(table.REQUEST_IDS)})",
    "repeats",
)

ROWS = (
    PanelRow(
        "Now",
        (
            Panel("Jobs", "Jobs that have not ended.", (_now(JOB.name),)),
            Panel("Runs", "Runs that have not ended.", (_now(RUN.name),)),
            Panel("Workers", "Live workers, as the supervisor sees them.", (_now(WORKER.name),)),
            Panel(
                "Jobs that end",
                "By how they end.",
                (
                    PromQuery(
                        _maximum_of_servers(
                            table.TRANSITIONS,
                            ("to_state",),
                            f'machine="{JOB.name}", {_one_of("to_state", job.ENDED)}',
                        ),
                        "{{to_state}}",
                    ),
                ),
                "ops",
            ),
            Panel(
                "Lost attempts",
                "Attempts whose leases expired or were revoked; the work is retried.",
                (
                    PromQuery(
                        _maximum_of_servers(
                            table.TRANSITIONS,
                            ("from_state",),
                            f'machine="{ATTEMPT.name}", to_state="{attempt.STALE}"',
                        ),
                        "{{from_state}}",
                    ),
                ),
                "ops",
            ),
            Panel(
                "Repeated requests",
                "Share of the requests with an id that were answered with the stored response.",
                (_HITS,),
                "percentunit",
            ),
        ),
    ),
    PanelRow(
        "Queues",
        (
            Panel(
                "Oldest ready job",
                "Age of the oldest job that could be started. Scale workers by it.",
                (PromQuery(_grouped_by(("queue",), table.QUEUE_OLDEST.name, take="max"), "{{queue}}"),),
                "s",
            ),
            Panel(
                "Jobs by queue",
                "Jobs that have not ended; an empty name stands for all further queues.",
                (
                    PromQuery(
                        _grouped_by(table.QUEUE_JOBS.labels, table.QUEUE_JOBS.name, take="max"),
                        "{{queue}} {{state}}",
                    ),
                ),
            ),
            Panel(
                "Wait and slots",
                "Time until the first start in the last hour, and slots of the workers of a queue.",
                (
                    PromQuery(
                        _grouped_by(table.QUEUE_WAIT.labels, table.QUEUE_WAIT.name, take="max"),
                        "{{queue}} p{{quantile}} in s",
                    ),
                    PromQuery(_grouped_by(("queue",), table.QUEUE_SLOTS.name, take="max"), "{{queue}} slots"),
                ),
            ),
        ),
    ),
    PanelRow(
        "Lifecycles",
        (
            Panel(
                "Transitions",
                "By the states that they lead from and to.",
                (
                    PromQuery(
                        _maximum_of_servers(table.TRANSITIONS, table.TRANSITIONS.labels, _MACHINES),
                        "{{machine}}: {{from_state}} → {{to_state}}",
                    ),
                ),
                "ops",
            ),
            Panel(
                "Time in a state",
                "95th percentile.",
                (
                    PromQuery(
                        _slowest(table.STATE_SECONDS, table.STATE_SECONDS.labels, _MACHINES, take="max"),
                        "{{machine}}: {{state}}",
                    ),
                ),
                "s",
            ),
            Panel(
                "Refused transitions",
                "Refused requests, and late messages of runners.",
                (
                    PromQuery(
                        _grouped_by(table.REFUSED.labels, _rate(table.REFUSED, only=_MACHINES)),
                        "{{machine}} {{state}}: {{code}}",
                    ),
                    PromQuery(
                        _maximum_of_servers(table.REFUSALS_JOURNALLED, ("machine",), _MACHINES),
                        "{{machine}}: journalled",
                    ),
                ),
                "ops",
            ),
        ),
    ),
    PanelRow(
        "Servers",
        (
            Panel(
                "Requests",
                "By response status.",
                (PromQuery(_grouped_by(("status",), _rate(table.HTTP_REQUESTS)), "{{status}}"),),
                "reqps",
            ),
            Panel(
                "Response time",
                "95th percentile.",
                (PromQuery(_slowest(table.HTTP_SECONDS, table.HTTP_SECONDS.labels), "{{method}} {{route}}"),),
                "s",
            ),
            Panel(
                "Loops that fail",
                "Consecutive failures; zero for a healthy loop. Rounds per second show that it is alive.",
                (
                    PromQuery(
                        _grouped_by(("loop",), table.LOOP_FAILURES.name, take="max"), "{{loop}} failures"
                    ),
                    PromQuery(
                        _grouped_by(("loop",), f"deriv({table.LOOP_ROUNDS.name}[5m])"), "{{loop}} rounds/s"
                    ),
                ),
            ),
            Panel(
                "Removed",
                "Expired records, journal entries and request ids.",
                (PromQuery(_grouped_by(table.PRUNED.labels, _rate(table.PRUNED)), "{{what}}"),),
                "ops",
            ),
            Panel(
                "Missed journal entries",
                "A server that fell so far behind that entries were pruned unread; its counters are too low.",
                (PromQuery(f"max(increase({table.JOURNAL_GAPS.name}[1h]))", "gaps in an hour"),),
            ),
        ),
    ),
    PanelRow(
        "Worker processes",
        (
            Panel(
                "Processes",
                "By the state that they are in.",
                (PromQuery(_grouped_by(("state",), table.WORKER_STATE.name), "{{state}}"),),
            ),
            Panel(
                "Transitions of processes",
                "A healthy process polls in rounds; one that keeps reconnecting is broken.",
                (
                    PromQuery(
                        _grouped_by(("from_state", "to_state"), _rate(table.WORKER_TRANSITIONS)),
                        "{{from_state}} → {{to_state}}",
                    ),
                ),
                "ops",
            ),
            Panel(
                "Time of processes in a state",
                "95th percentile.",
                (PromQuery(_slowest(table.WORKER_SECONDS, ("state",)), "{{state}}"),),
                "s",
            ),
            Panel(
                "Tasks that end",
                "By how they end.",
                (
                    PromQuery(
                        _grouped_by(
                            ("task_type", "to_state"),
                            _rate(table.TASK_TRANSITIONS, only=_one_of("to_state", task.ENDED)),
                        ),
                        "{{task_type}} {{to_state}}",
                    ),
                ),
                "ops",
            ),
            Panel(
                "Duration of tasks",
                "95th percentile.",
                (
                    PromQuery(
                        _slowest(table.TASK_SECONDS, ("task_type",), f'state="{task.PROCESSING}"'),
                        "{{task_type}}",
                    ),
                ),
                "s",
            ),
            Panel(
                "Anomalies",
                "Refused events, silent loops, handlers that could not be stopped, forced shutdowns.",
                (
                    PromQuery(
                        _grouped_by(table.WORKER_REFUSED.labels, _rate(table.WORKER_REFUSED)),
                        "{{machine}}: {{event}}",
                    ),
                    PromQuery(_grouped_by(("loop",), table.WORKER_LOOP_STALLED.name), "{{loop}} is silent"),
                    PromQuery(f"sum({table.WORKER_LEFT_BEHIND.name})", "handlers left behind"),
                    PromQuery(f"sum({table.WORKER_FORCED.name})", "ends forced"),
                ),
            ),
        ),
    ),
)


_WIDTH, _HEIGHT, _ACROSS = 8, 8, 3
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> dict[str, Any]:
    """Return the dashboard for the import into Grafana."""
    return {
        "uid": "interlock",
        "title": "Interlock",
        "description": "Runs, jobs, workers and their lifecycles.",
        "tags": ["interlock"],
        "timezone": "browser",
        "editable": True,
        "graphTooltip": 1,
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_datasource(), _machines()]},
        "panels": list(_placed(ROWS)),
    }


def _placed(rows: Sequence[PanelRow]) -> Iterator[dict[str, Any]]:
    """Yield the panels, three in a line, row below row."""
    number, top = 1, 0
    for row in rows:
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "gridPos": {"h": 1, "w": _WIDTH * _ACROSS, "x": 0, "y": top},
            "panels": [],
        }
        number, top = number + 1, top + 1
        for place, panel in enumerate(row.panels):
            down, across = divmod(place, _ACROSS)
            at = {"h": _HEIGHT, "w": _WIDTH, "x": across * _WIDTH, "y": top + down * _HEIGHT}
            yield _drawn(panel, number, at)
            number += 1
        top += -(-len(row.panels) // _ACROSS) * _HEIGHT


def _drawn(panel: Panel, number: int, at: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.says,
        "datasource": _SOURCE,
        "gridPos": at,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {
            "legend": {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": _SOURCE,
                "expr": query.ask,
                "legendFormat": query.legend,
                "range": True,
            }
            for place, query in enumerate(panel.queries)
        ],
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _machines() -> dict[str, Any]:
    return {
        "name": "machine",
        "label": "Lifecycle",
        "type": "query",
        "datasource": _SOURCE,
        "query": f"label_values({table.TRANSITIONS.name}, machine)",
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"], "selected": True},
    }
