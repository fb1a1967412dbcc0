"""Spans around handlers, if OpenTelemetry is set up; otherwise it is not loaded.

A span continues the trace of the submission (`grant.trace`), so that one trace shows the submitter and the
worker.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from interlock.wire.runner import Grant
from interlock.worker.telemetry import Log

_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_SENT_WITHIN_MS = 2_000
"""Timeout to send spans at the end of a process."""


class AttemptSpans:
    """Makes one span per attempt."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer

    @contextlib.contextmanager
    def span(self, grant: Grant) -> Iterator[AttemptSpan]:
        """Yield the span of an attempt, current while the handler runs."""
        from opentelemetry import propagate  # noqa: PLC0415 - optional dependency

        attributes = {
            "interlock.job_id": grant.job_id,
            "interlock.task": grant.task,
            "interlock.queue": grant.queue,
            "interlock.attempt": grant.attempt,
            "interlock.shard": grant.shard,
        }
        parent = propagate.extract(dict(grant.trace))
        shows_errors = (
            not grant.secrets
        )  # the text of an error may contain a secret, and spans are not masked
        with self._tracer.start_as_current_span(
            grant.task,
            context=parent,
            attributes=attributes,
            record_exception=shows_errors,
            set_status_on_exception=shows_errors,
        ) as span:
            yield AttemptSpan(span, shows_errors=shows_errors)


class AttemptSpan:
    """The span of one attempt, for execution in another process."""

    def __init__(self, span: Any, *, shows_errors: bool) -> None:
        self._span = span
        self._shows_errors = shows_errors

    def carried(self) -> dict[str, str]:
        """Return the trace context for the other process."""
        from opentelemetry import propagate, trace  # noqa: PLC0415 - see above

        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(self._span))
        return carrier

    def failed(self, error: str) -> None:
        """Record the failure of a handler in another process."""
        from opentelemetry import trace  # noqa: PLC0415

        if self._shows_errors:
            self._span.set_status(trace.Status(trace.StatusCode.ERROR, error))


@contextlib.contextmanager
def continuing(carried: Mapping[str, str]) -> Iterator[None]:
    """Continue a trace in the process of a handler; send its spans."""
    if not carried or not _installed("opentelemetry.trace"):
        yield
        return
    from opentelemetry import context, propagate, trace  # noqa: PLC0415

    tracing_if_configured()
    token = context.attach(propagate.extract(dict(carried)))
    try:
        yield
    finally:
        context.detach(token)
        flush = getattr(trace.get_tracer_provider(), "force_flush", None)
        if flush is not None:
            flush(_SENT_WITHIN_MS)


def tracing_if_configured(
    environ: Mapping[str, str] = os.environ, log: Log | None = None
) -> AttemptSpans | None:
    """Return the tracing, if OpenTelemetry is installed and configured.

    Log a warning if an endpoint is configured and a library is missing, because no spans are sent then.
    """
    wanted = bool(environ.get(_ENDPOINT))
    if not wanted and "opentelemetry.trace" not in sys.modules:
        return None
    tracing = _tracing(wanted=wanted)
    if wanted and tracing is None and log is not None:
        log.warning(
            "spans_not_sent",
            error=f"{_ENDPOINT} is set, and the libraries of OpenTelemetry are not installed.",
            todo="Install them: pip install 'interlock[otel]'",
        )
    return tracing


def _tracing(*, wanted: bool) -> AttemptSpans | None:
    if not _installed("opentelemetry.trace"):
        return None
    from opentelemetry import trace  # noqa: PLC0415

    if not _has_provider(trace) and not (wanted and _provide(trace)):
        return None
    return AttemptSpans(trace.get_tracer("interlock.worker"))


def _has_provider(trace: Any) -> bool:
    return not isinstance(trace.get_tracer_provider(), (trace.ProxyTracerProvider, trace.NoOpTracerProvider))


def _provide(trace: Any) -> bool:
    """Export spans to the endpoint in the environment."""
    for name in ("http", "grpc"):
        module = f"opentelemetry.exporter.otlp.proto.{name}.trace_exporter"
        if _installed(module) and _installed("opentelemetry.sdk.trace"):
            sdk = importlib.import_module("opentelemetry.sdk.trace")
            exporting = importlib.import_module("opentelemetry.sdk.trace.export")
            provider = sdk.TracerProvider()
            provider.add_span_processor(
                exporting.BatchSpanProcessor(importlib.import_module(module).OTLPSpanExporter())
            )
            trace.set_tracer_provider(provider)
            return True
    return False


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
