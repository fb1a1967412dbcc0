"""The forms in which a result is saved: JSON, CSV, HdrHistogram's own log, and a page to look at."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

import msgspec
from hdrh.log import HistogramLogWriter

from interlock.systems.fleet.histograms import Histogram
from interlock.systems.fleet.outcome import WorkloadResult
from interlock.systems.fleet.report import page

_COLUMNS = (
    "second", "agents", "operations", "errors", "mean_ms", "p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms",
)  # fmt: skip


def files_of(result: WorkloadResult, by_second: Iterable[tuple[int, Histogram]]) -> dict[str, bytes]:
    """Every form, by the name of its file."""
    return {
        "result.json": as_json(result),
        "seconds.csv": as_csv(result),
        "latencies.hlog": as_log(result, by_second),
        "report.html": page(result).encode(),
    }


def as_json(result: WorkloadResult) -> bytes:
    """Everything."""
    return msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n"


def as_csv(result: WorkloadResult) -> bytes:
    """A line for every second."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(_COLUMNS)
    for second in result.seconds:
        said = {**msgspec.structs.asdict(second), **msgspec.structs.asdict(second.latencies)}
        lines.writerow([_figure(said[column]) for column in _COLUMNS])
    return text.getvalue().encode()


def as_log(result: WorkloadResult, by_second: Iterable[tuple[int, Histogram]]) -> bytes:
    """A histogram of nanoseconds for every second, as HdrHistogram's plotter and its like read it."""
    text = io.StringIO()
    log = HistogramLogWriter(text)
    at = result.started_at.timestamp() if result.started_at else 0.0
    log.output_comment(f"[Latencies of {result.name or result.kind}, {result.verdict}]")
    log.output_log_format_version()
    log.output_comment(f"[StartTime: {at:.3f} (seconds since epoch)]")
    log.output_legend()
    for second, histogram in by_second:
        # The writer takes a start of 0 for none given, and then asks the histogram.
        histogram.set_start_time_stamp(second * 1_000)
        histogram.set_end_time_stamp((second + 1) * 1_000)
        log.output_interval_histogram(histogram)
    return text.getvalue().encode()


def _figure(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value
