"""As much of Prometheus as the dashboard needs: scrapes of real pages, and what a query makes of them.

What is not known here is an error, never a guess: a query that uses more of PromQL needs more of this.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import promql_parser as promql
from prometheus_client.parser import text_string_to_metric_families

Labels: TypeAlias = frozenset[tuple[str, str]]
Vector: TypeAlias = dict[Labels, float]

_MATCHES: dict[str, Callable[[str, str], bool]] = {
    "MatchOp.Equal": lambda value, wanted: value == wanted,
    "MatchOp.NotEqual": lambda value, wanted: value != wanted,
    "MatchOp.Re": lambda value, wanted: re.fullmatch(wanted, value) is not None,
    "MatchOp.NotRe": lambda value, wanted: re.fullmatch(wanted, value) is None,
}
_FOLDS: dict[str, Callable[[Iterable[float]], float]] = {"sum": sum, "max": max}


@dataclass(frozen=True, slots=True)
class Scrape:
    """What one page said, and when."""

    at: float
    series: Mapping[str, Vector]


def scrape(at: float, *pages: str) -> Scrape:
    """Several pages as Prometheus keeps them: each series knows from whom it is."""
    series: dict[str, Vector] = defaultdict(dict)
    for number, page in enumerate(pages):
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                labels = {**sample.labels, "instance": f"host-{number}", "job": "interlock"}
                series[sample.name][frozenset(labels.items())] = sample.value
    return Scrape(at, series)


def selectors(query: str) -> list[promql.VectorSelector]:
    """Every place at which a query names a metric."""
    found: list[promql.VectorSelector] = []

    def note(node: promql.Expr) -> None:
        if isinstance(node, promql.VectorSelector):
            found.append(node)

    promql.walk(promql.parse(query), note)
    return found


def grouping(query: str) -> set[str]:
    """Every label by which a query groups."""
    found: set[str] = set()

    def note(node: promql.Expr) -> None:
        if isinstance(node, promql.AggregateExpr) and node.modifier is not None:
            found.update(node.modifier.labels)

    promql.walk(promql.parse(query), note)
    return found


def answer(query: str, scrapes: Sequence[Scrape]) -> Vector:
    """What a query gives at the time of the last scrape."""
    return _value(promql.parse(query), scrapes)


def _value(node: promql.Expr, scrapes: Sequence[Scrape]) -> Vector:
    match node:
        case promql.VectorSelector():
            return _selected(node, scrapes[-1])
        case promql.ParenExpr():
            return _value(node.expr, scrapes)
        case promql.AggregateExpr():
            return _folded(node, _value(node.expr, scrapes))
        case promql.BinaryExpr() if str(node.op) == "/" and node.modifier is None:
            over, under = _value(node.lhs, scrapes), _value(node.rhs, scrapes)
            return {who: _divided(over[who], under[who]) for who in over.keys() & under.keys()}
        case promql.Call():
            return _called(node, scrapes)
    raise NotImplementedError(f"{type(node).__name__}: {node}")


def _divided(over: float, under: float) -> float:
    return over / under if under else math.nan


def _selected(node: promql.VectorSelector, scrape: Scrape) -> Vector:
    def meant(labels: Labels) -> bool:
        known = dict(labels)
        return all(_MATCHES[str(m.op)](known.get(m.name, ""), m.value) for m in node.matchers.matchers)

    found = scrape.series.get(node.name or "", {})
    return {labels: value for labels, value in found.items() if meant(labels)}


def _folded(node: promql.AggregateExpr, vector: Vector) -> Vector:
    groups: dict[Labels, list[float]] = defaultdict(list)
    kept = set(node.modifier.labels) if node.modifier is not None else set()
    if node.modifier is not None:
        assert str(node.modifier.type) == "AggModifierType.By"
    for labels, value in vector.items():
        groups[frozenset(pair for pair in labels if pair[0] in kept)].append(value)
    return {labels: _FOLDS[str(node.op)](values) for labels, values in groups.items()}


def _called(node: promql.Call, scrapes: Sequence[Scrape]) -> Vector:
    arguments: list[Any] = list(node.args)
    match node.func.name, arguments:
        case "rate" | "increase" | "deriv", [promql.MatrixSelector() as matrix]:
            first, last = scrapes[0], scrapes[-1]
            before, after = (_selected(matrix.vector_selector, each) for each in (first, last))
            seconds = last.at - first.at if node.func.name != "increase" else 1.0
            return {who: (after[who] - before[who]) / seconds for who in after.keys() & before.keys()}
        case "histogram_quantile", [promql.NumberLiteral() as share, vector]:
            return _quantiles(share.val, _value(vector, scrapes))
    raise NotImplementedError(node.func.name)


def _quantiles(share: float, buckets: Vector) -> Vector:
    """The upper bound of the bucket in which it lies: where within it does not matter here."""
    histograms: dict[Labels, list[tuple[float, float]]] = defaultdict(list)
    for labels, value in buckets.items():
        bound = float(dict(labels)["le"])
        histograms[frozenset(pair for pair in labels if pair[0] != "le")].append((bound, value))
    found: Vector = {}
    for labels, counts in histograms.items():
        total = max(value for _, value in counts)
        if total > 0:
            found[labels] = min(bound for bound, value in counts if value >= share * total)
    return found
