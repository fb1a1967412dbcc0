"""Spans around handlers, for whoever has set up OpenTelemetry; for anybody else nothing is loaded.

A span continues the trace that the submission belonged to (`grant.trace`), so that one picture shows
who asked for the work and who did it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from interlock.wire.runner import Grant

_SENT_WITHIN_MS = 2_000
"""How long a process that has done its work waits for its spans to be sent."""


class Tracing:
    """Makes one span per attempt."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer

    @contextlib.contextmanager
    def span(self, grant: Grant) -> Iterator[AttemptSpan]:
        """The span of an attempt, current while the handler runs."""
        from opentelemetry import propagate  # noqa: PLC0415 - nobody but those who trace has it

        attributes = {
            "interlock.job_id": grant.job_id,
            "interlock.task": grant.task,
            "interlock.queue": grant.queue,
            "interlock.attempt": grant.attempt,
            "interlock.shard": grant.shard,
        }
        parent = propagate.extract(dict(grant.trace))
        told = not grant.secrets  # the text of an error may have a secret in it, and a span is not masked
        with self._tracer.start_as_current_span(
            grant.task,
            context=parent,
            attributes=attributes,
            record_exception=told,
            set_status_on_exception=told,
        ) as span:
            yield AttemptSpan(span, told=told)


class AttemptSpan:
    """The span of one attempt, for whoever executes it in another process."""

    def __init__(self, span: Any, *, told: bool) -> None:
        self._span = span
        self._told = told

    def carried(self) -> dict[str, str]:
        """What the other process continues the trace with."""
        from opentelemetry import propagate, trace  # noqa: PLC0415 - see above

        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(self._span))
        return carrier

    def failed(self, error: str) -> None:
        """It has failed over there, where nobody could raise through this span."""
        from opentelemetry import trace  # noqa: PLC0415

        if self._told:
            self._span.set_status(trace.Status(trace.StatusCode.ERROR, error))


@contextlib.contextmanager
def continuing(carried: Mapping[str, str]) -> Iterator[None]:
    """For a process of one handler: spans that it makes belong to the trace, and are sent before it ends."""
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


def tracing_if_configured(environ: Mapping[str, str] = os.environ) -> Tracing | None:
    """Spans, if OpenTelemetry is installed and somebody has said where they go."""
    if not _installed("opentelemetry.trace"):
        return None
    wanted = bool(environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"))
    if not wanted and "opentelemetry.trace" not in sys.modules:
        return None
    from opentelemetry import trace  # noqa: PLC0415

    if not _has_provider(trace) and not (wanted and _provide(trace)):
        return None
    return Tracing(trace.get_tracer("interlock.worker"))


def _has_provider(trace: Any) -> bool:
    return not isinstance(trace.get_tracer_provider(), (trace.ProxyTracerProvider, trace.NoOpTracerProvider))


def _provide(trace: Any) -> bool:
    """Send spans to the endpoint of the environment, with whichever exporter is installed."""
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
