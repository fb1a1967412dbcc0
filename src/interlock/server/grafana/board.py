"""The dashboard as Grafana imports it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from interlock.server.grafana.panels import ROWS, Panel, Row
from interlock.wire import metrics as table

_WIDTH, _HEIGHT, _ACROSS = 8, 8, 3
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> dict[str, Any]:
    """Everything that Grafana imports."""
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


def _placed(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Three in a line, each row under the one before."""
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
