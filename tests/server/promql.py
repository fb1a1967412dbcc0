"""As much of Prometheus as dashboard and alerts need: scrapes of pages, and what a query makes of them.

What is not known here is an error, never a guess: a query that uses more of PromQL needs more of this.
"""

from __future__ import annotations

import math
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import promql_parser as promql
from prometheus_client.parser import text_string_to_metric_families

from interlock.wire import metrics as table

Labels: TypeAlias = frozenset[tuple[str, str]]
Vector: TypeAlias = dict[Labels, float]

OURS = {metric.name: metric for metric in (*table.SERVER, *table.WORKER)}

_MATCHES: dict[str, Callable[[str, str], bool]] = {
    "MatchOp.Equal": lambda value, wanted: value == wanted,
    "MatchOp.NotEqual": lambda value, wanted: value != wanted,
    "MatchOp.Re": lambda value, wanted: re.fullmatch(wanted, value) is not None,
    "MatchOp.NotRe": lambda value, wanted: re.fullmatch(wanted, value) is None,
}
_FOLDS: dict[str, Callable[[Iterable[float]], float]] = {"sum": sum, "max": max, "min": min}
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
}
_SETS = ("and", "or", "unless")


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
    return _selectors_in(promql.parse(query))


def _selectors_in(expression: promql.Expr) -> list[promql.VectorSelector]:
    found: list[promql.VectorSelector] = []

    def note(node: promql.Expr) -> None:
        if isinstance(node, promql.VectorSelector):
            found.append(node)

    promql.walk(expression, note)
    return found


def _named(query: str) -> list[tuple[str, set[str]]]:
    """Every metric of a query with the labels that it is chosen and grouped by."""
    found = [(each.name or "", {one.name for one in each.matchers.matchers}) for each in selectors(query)]

    def note(node: promql.Expr) -> None:
        if isinstance(node, promql.AggregateExpr) and node.modifier is not None:
            found.extend((each.name or "", set(node.modifier.labels)) for each in _selectors_in(node.expr))

    promql.walk(promql.parse(query), note)
    return found


def metric_of(name: str) -> table.Metric | None:
    """The metric that a series belongs to: of a histogram there are three."""
    parts = (name, *(name.removesuffix(part) for part in ("_bucket", "_sum", "_count")))
    return next((OURS[part] for part in parts if part in OURS), None)


def faults_of(query: str) -> list[str]:
    """What a query names that the table of metrics does not know."""
    faults = []
    for name, labels in _named(query):
        metric = metric_of(name)
        if metric is None:
            faults.append(f"there is no metric {name}")
            continue
        known = {*metric.labels, "instance", *(("le",) if metric.kind == "histogram" else ())}
        faults += [f"{metric.name} has no label {label}" for label in sorted(labels - known)]
    return sorted(set(faults))


def answer(query: str, scrapes: Sequence[Scrape]) -> Vector:
    """What a query gives at the time of the last scrape."""
    return _value(promql.parse(query), scrapes)


def _value(node: promql.Expr, scrapes: Sequence[Scrape]) -> Vector:
    match node:
        case promql.VectorSelector():
            return _selected(node, scrapes[0 if node.offset else -1])
        case promql.ParenExpr():
            return _value(node.expr, scrapes)
        case promql.AggregateExpr():
            return _folded(node, _value(node.expr, scrapes))
        case promql.BinaryExpr():
            return _combined(node, scrapes)
        case promql.Call():
            return _called(node, scrapes)
    raise NotImplementedError(f"{type(node).__name__}: {node}")


def _combined(node: promql.BinaryExpr, scrapes: Sequence[Scrape]) -> Vector:
    word, left = str(node.op), _value(node.lhs, scrapes)
    if word in _COMPARISONS and isinstance(node.rhs, promql.NumberLiteral):
        limit = node.rhs.val
        return {who: number for who, number in left.items() if _COMPARISONS[word](number, limit)}
    right = _value(node.rhs, scrapes)
    if word in _SETS:
        return _joined(word, left, right)
    if word == "/" and node.modifier is None:
        return {who: _divided(left[who], right[who]) for who in left.keys() & right.keys()}
    raise NotImplementedError(f"{word}: {node}")


def _joined(word: str, one: Vector, other: Vector) -> Vector:
    match word:
        case "and":
            return {who: number for who, number in one.items() if who in other}
        case "unless":
            return {who: number for who, number in one.items() if who not in other}
    return {**other, **one}


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
        case "changes", [promql.MatrixSelector() as matrix]:
            before, after = (_selected(matrix.vector_selector, each) for each in (scrapes[0], scrapes[-1]))
            return {who: float(after[who] != before.get(who, after[who])) for who in after}
        case "absent", [vector]:
            return {} if _value(vector, scrapes) else {frozenset(): 1.0}
        case "vector", [promql.NumberLiteral() as number]:
            return {frozenset(): number.val}
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
