"""What a worker says about itself: logs, metrics, spans, and loops that fall silent (S1-18, S1-19; R17)."""

from __future__ import annotations

import asyncio
import io
import logging
import sys
import threading
import urllib.request
from typing import Any

import msgspec
import pytest
from tests.waiting import PATIENCE_S, until_so
from tests.worker.board import Board, Clock
from tests.worker.conftest import Gate, Start, Worker

from interlock.errors import InvalidSettings
from interlock.lifecycles.durations import Durations
from interlock.processes.groups import Orphans
from interlock.worker.context import Context
from interlock.worker.host import LoopTick, Shutdown, keep_running
from interlock.worker.settings import WorkerSettings
from interlock.worker.tasks import Registry
from interlock.worker.telemetry import Metrics, libraries_logging, make_log
from interlock.worker.tracing import AttemptSpans, tracing_if_configured
from interlock.worker.watchdog import Watchdog

TOKEN = "j_0123456789ab.1.2.0123456789abcdef0123456789abcdef"


def samples(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
    }


# Metrics


async def test_transitions_are_counted_and_the_state_is_one_hot(
    board: Board, start: Start, echo: str
) -> None:
    """S1-18, R17"""
    metrics = Metrics("tester")
    job = board.pin(echo)
    worker = start(metrics=metrics, level="error")
    await board.until_state(job, "succeeded")
    assert await worker.stop() == 0
    seen = samples(metrics)
    states = {labels[1]: value for (name, labels), value in seen.items() if name == "worker_state"}
    assert states == {**dict.fromkeys(states, 0.0), "stopped": 1.0}
    assert len(states) == 7
    moved = "worker_state_transitions_total"
    assert seen[moved, ("tester", "starting", "connecting", "initialized")] == 1
    assert seen[moved, ("tester", "shutting_down", "stopped", "shutdown_complete")] == 1
    assert seen["task_state_transitions_total", ("echo", "reporting", "completed", "report_succeeded")] == 1
    for state in ("pending", "claiming", "processing", "reporting"):
        assert seen["task_state_duration_seconds_count", ("echo", state)] == 1
    assert ("task_state_duration_seconds_count", ("echo", "completed")) not in seen, "it is never left"
    assert seen["worker_shutdown_forced", ("tester",)] == 0


async def test_refused_transitions_are_counted(board: Board, start: Start) -> None:
    """S0-37"""
    from interlock.lifecycles.process import initialized

    metrics = Metrics("tester")
    worker = start(metrics=metrics)
    await board.until(lambda: worker.process.state == "backing_off", "the backoff")
    worker.process.send(initialized)
    assert samples(metrics)["refused_transitions_total", ("process", "backing_off", "initialized")] == 1


async def test_prometheus_is_answered() -> None:
    metrics = Metrics("tester")
    port, stop = metrics.serve(0, "127.0.0.1")
    try:
        url = f"http://127.0.0.1:{port}/metrics"
        answer = await asyncio.to_thread(
            lambda: urllib.request.urlopen(url, timeout=PATIENCE_S).read().decode()
        )
    finally:
        stop()
    assert 'worker_state{state="starting",worker_id="tester"} 1.0' in answer


# Logs


def test_a_line_of_the_log_is_json_with_its_name_as_the_message() -> None:
    stream = io.StringIO()
    make_log("info", "json", stream).info("task_state_transition", task_id="j_1", _event="claim_succeeded")
    line = msgspec.json.decode(stream.getvalue())
    assert (line["message"], line["event"], line["level"]) == (
        "task_state_transition",
        "claim_succeeded",
        "info",
    )
    assert line["timestamp"].endswith("Z")


def test_messages_below_the_log_level_are_not_written() -> None:
    stream = io.StringIO()
    log = make_log("warning", "json", stream)
    log.info("nothing")
    assert stream.getvalue() == ""
    assert not log.is_enabled_for(logging.INFO)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_text_and_a_pipe_gets_json() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        make_log("info", "auto", stream).info("hello", answer=42)
    assert "hello" in terminal.getvalue()
    assert not terminal.getvalue().startswith("{")
    assert msgspec.json.decode(pipe.getvalue())["answer"] == 42


def test_the_log_on_a_terminal_has_colours_unless_no_color_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = {}
    for value in ("", "1"):
        monkeypatch.setenv("NO_COLOR", value)
        terminal = Terminal()
        make_log("info", "auto", terminal).info("hello")
        shown[value] = "\x1b[" in terminal.getvalue()
    assert shown == {"": True, "1": False}


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_token_that_gets_into_a_line_is_taken_out(form: str) -> None:
    """R31"""
    stream = io.StringIO()
    make_log("info", form, stream).warning("oops", error=f"about {TOKEN}, you know")
    assert "0123456789abcdef0123456789abcdef" not in stream.getvalue()
    assert "j_0123456789ab.1.2.***" in stream.getvalue()


def test_log_records_of_libraries_are_written_in_the_same_format() -> None:
    stream = io.StringIO()
    with libraries_logging("warning", "json", stream):
        logging.getLogger("asyncio").warning("slow %s", TOKEN)
        logging.getLogger("some.library").info("nobody asked")
        try:
            int("inner")
        except ValueError:
            logging.getLogger("some.library").exception("failed")
        wrong = logging.LogRecord("some.library", logging.WARNING, "", 0, "wrong %d", ("format",), None)
        logging.getLogger().handlers[-1].handle(wrong)
    logging.getLogger("asyncio").warning("not any more")
    lines = [msgspec.json.decode(line) for line in stream.getvalue().splitlines()]
    assert [line["message"] for line in lines] == ["slow j_0123456789ab.1.2.***", "failed", "wrong %d"]
    assert "ValueError: invalid literal" in lines[1]["exception"]


def test_a_reader_that_has_gone_away_does_not_end_the_worker() -> None:
    class Broken(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    make_log("info", "json", Broken()).info("hello")


# Spans


async def test_a_span_continues_the_trace_of_the_submission(
    board: Board, start: Start, registry: Registry
) -> None:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    @registry.task(name="traced")
    async def traced() -> str:
        return f"{trace.get_current_span().get_span_context().trace_id:032x}"

    @registry.task(name="traced_in_thread")
    def traced_in_thread() -> str:
        return f"{trace.get_current_span().get_span_context().trace_id:032x}"

    wanted = "0af7651916cd43dd8448eb211c80319c"
    parent = {"traceparent": f"00-{wanted}-b7ad6b7169203331-01"}
    jobs = [board.pin(name, trace=parent) for name in ("traced", "traced_in_thread")]
    start(tracing=AttemptSpans(provider.get_tracer("test")))
    for job in jobs:
        await board.until_state(job, "succeeded")
        assert job.result == wanted
    assert {span.name for span in exporter.get_finished_spans()} == {"traced", "traced_in_thread"}


def test_a_client_that_has_not_configured_tracing_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "modules", {k: v for k, v in sys.modules.items() if "opentelemetry" not in k})
    assert tracing_if_configured({}) is None


# Loops that fall silent


class Silent:
    """A supervisor whose clock is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.stream = io.StringIO()
        self.metrics = Metrics("tester")
        self.awaited = True
        self.beat = LoopTick("poll", lambda: self.now, lambda: self.awaited)
        self.supervisor = Watchdog(
            [self.beat],
            WorkerSettings(name="tester", stalled_after_s=30.0, stuck_after_s=300.0),
            log=make_log("info", "json", self.stream),
            metrics=self.metrics,
            blocked_by=lambda: "resize (j_1)",
            monotonic=lambda: self.now,
        )

    def messages(self) -> list[tuple[str, str]]:
        lines = [msgspec.json.decode(line) for line in self.stream.getvalue().splitlines()]
        return [(line["message"], line.get("loop", "")) for line in lines]


def test_a_loop_that_falls_silent_is_noticed_once_and_so_is_its_return() -> None:
    silent = Silent()
    gauge = ("worker_loop_stalled", ("tester", "poll"))
    for silent.now in (10.0, 29.0):
        silent.supervisor.look()
    assert silent.messages() == []
    for silent.now in (31.0, 32.0):
        silent.supervisor.look()
    assert silent.messages().count(("loop_stalled", "poll")) == 1
    assert samples(silent.metrics)[gauge] == 1
    silent.beat.at = silent.now
    silent.supervisor.look()
    assert ("loop_heard_again", "poll") in silent.messages()
    assert samples(silent.metrics)[gauge] == 0


def test_a_loop_that_has_nothing_to_do_may_be_silent() -> None:
    silent = Silent()
    silent.awaited = False
    silent.now = 1_000.0
    silent.supervisor.look()
    assert ("loop_stalled", "poll") not in silent.messages()
    silent.awaited = True
    silent.now = 1_020.0
    silent.supervisor.look()
    assert ("loop_stalled", "poll") not in silent.messages(), "it is awaited only since a moment ago"


async def test_a_handler_that_blocks_the_event_loop_for_long_is_named_with_its_line(
    board: Board, start: Start, registry: Registry
) -> None:
    clock = Clock()

    @registry.task(name="hog")
    async def hog() -> None:
        clock.move(301.0)
        until_so(lambda: bool(worker.lines.all("event_loop_blocked")), "the handler is named")

    worker = start(stalled_after_s=30.0, stuck_after_s=300.0, monotonic=clock)
    job = board.pin("hog")
    await board.until_state(job, "succeeded")
    line = worker.lines.all("event_loop_blocked")[0]
    assert line["handler"] == f"hog ({job.id})"
    assert "in hog" in line["stack"]
    assert ("event loop") in {line["loop"] for line in worker.lines.all("loop_stalled")}


async def test_a_claim_that_never_returns_is_noticed(board: Board, start: Start) -> None:
    """Alive but not consuming."""
    board.held["claim"] = threading.Event()
    worker = start(stalled_after_s=0.1)
    # On a slow machine other loops may be called stalled as well, and are heard again by themselves.
    await board.until(lambda: "poll" in stalled(worker), "the loop to be called stalled")
    board.held["claim"].set()
    await worker.lines.until("loop_heard_again")


async def test_a_busy_worker_without_room_is_not_called_stalled(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    clock = Clock()
    looks: list[float] = []

    def look() -> None:
        looks.append(clock())
        board.changed()

    job = board.pin(held)
    worker = start(concurrency=1, stalled_after_s=30.0, monotonic=clock, also=[look])
    await gate.until_entered()
    await board.until_state(job, "running")
    clock.move(100.0)
    await board.until(lambda: looks.count(clock()) >= 2, "the supervisor to have looked")
    assert "poll" not in stalled(worker)


def stalled(worker: Worker) -> set[str]:
    return {line["loop"] for line in worker.lines.all("loop_stalled")}


async def test_a_loop_that_crashes_is_begun_again_after_growing_pauses() -> None:
    pauses: list[float] = []
    runs = iter([ValueError("one"), ValueError("two"), None])

    async def body() -> None:
        error = next(runs)
        if error is not None:
            raise error

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    stream = io.StringIO()
    await keep_running("report", body, make_log("info", "json", stream), sleep)
    assert pauses == [0.1, 0.2]
    assert stream.getvalue().count("loop_crashed") == 2


# Settings, signals, orphans


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"name": ""}, "name"),
        ({"name": "a#b"}, "name"),
        ({"queues": ()}, "queues"),
        ({"concurrency": 0}, "concurrency"),
        ({"threads": 0}, "threads"),
        ({"prefetch": -1}, "prefetch"),
        ({"first_backoff_s": 0.0}, "first_backoff_s"),
        ({"log_format": "xml"}, "log_format"),
        ({"log_level": "loud"}, "log_level"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(wrong: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidSettings, match=word):
        WorkerSettings(**{"name": "w", **wrong})


@pytest.mark.parametrize(("cancel_s", "grace_s"), [(30.0, 5.0), (16.0, 4.0)])
def test_a_handler_that_does_not_listen_is_stopped_well_before_its_cancel_is_forced(
    cancel_s: float, grace_s: float
) -> None:
    durations = Durations(abort_warning_s=1.0, abort_kill_s=2.0, cancel_deadline_s=cancel_s)
    assert WorkerSettings(name="w", durations=durations).stop_grace_s == grace_s
    assert WorkerSettings(name="w", durations=durations, stop_grace_s=0.0).stop_grace_s == 0.0
    read = msgspec.json.decode(msgspec.json.encode(WorkerSettings(name="w")), type=WorkerSettings)
    assert read.stop_grace_s == 5.0


@pytest.mark.parametrize(("ttl_s", "patience_s"), [(60.0, 10.0), (32.0, 8.0), (4.0, 2.0)])
def test_every_worker_is_as_patient_with_a_store_as_its_leases_allow(ttl_s: float, patience_s: float) -> None:
    times = {"ack_window_s": ttl_s, "heartbeat_every_s": ttl_s / 4, "shutdown_deadline_s": ttl_s / 2}
    times |= {"shutdown_soft_s": ttl_s / 4, "cancel_deadline_s": ttl_s / 4}
    times |= {"abort_kill_s": ttl_s / 8, "abort_warning_s": ttl_s / 16}
    durations = Durations(lease_ttl_s=ttl_s, **times)
    assert WorkerSettings(name="w", durations=durations).patience_s == patience_s
    assert WorkerSettings(name="w", durations=durations, patience_s=0.0).patience_s == 0.0


def test_a_shutdown_request_is_recorded_once_and_notifies_later_subscribers() -> None:
    now = iter([1.0, 2.0])
    shutdown = Shutdown(lambda: next(now))
    woken: list[str] = []
    stop = shutdown.subscribe(lambda: woken.append("early"))
    assert not shutdown.requested
    shutdown.request()
    stop()
    shutdown.request()
    shutdown.subscribe(lambda: woken.append("late"))
    assert (woken, shutdown.requested_at) == (["early", "late"], 1.0)


ORPHANING = """
import ctypes, os, subprocess, sys
from interlock.processes.groups import Orphans
ctypes.CDLL(None).prctl(36, 1)  # as PID 1 is: whoever loses its parent becomes our child
own = subprocess.Popen(["sh", "-c", "exit 7"])
other = subprocess.Popen(["sh", "-c", "sh -c 'exit 0' & sleep 0.05; exit 0"], start_new_session=True)
script = "(exec sh -c 'sleep 0.05') & echo $!"
parent = subprocess.Popen(["sh", "-c", script], start_new_session=True, stdout=-1)
orphan = int(parent.communicate()[0])
os.waitid(os.P_PID, orphan, os.WEXITED | os.WNOWAIT)
os.waitid(os.P_PID, own.pid, os.WEXITED | os.WNOWAIT)
orphans = Orphans(every_s=0.0)
print(orphans.fetch() >= 1, not os.path.exists(f"/proc/{orphan}"), own.wait(), other.wait())
"""


async def test_orphans_are_fetched_and_our_own_children_are_left_to_their_parents() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ORPHANING, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert output.decode().split() == ["True", "True", "7", "0"]


def test_an_ended_child_process_that_is_not_reaped_by_its_owner_is_reaped_after_a_while() -> None:
    import os
    import subprocess

    now = [0.0]
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    orphans = Orphans(lambda: now[0])
    assert orphans.fetch() == 0
    now[0] = 61.0
    assert orphans.fetch() == 1
    child.wait()


def test_a_context_of_a_handler_does_not_show_the_token(board: Board) -> None:
    from datetime import UTC, datetime

    from interlock.wire.runner import ClaimRequest

    board.pin("x")
    (grant,) = board.claim(ClaimRequest(runner_id="w#1"))
    assert "secret" not in repr(Context(grant, now=lambda: datetime.now(UTC)))


def test_the_store_time_advances_with_the_local_clock_and_never_moves_back() -> None:
    from datetime import UTC, datetime, timedelta

    from interlock.worker.host import StoreTime

    passed, began = [0.0], datetime(2026, 1, 1, tzinfo=UTC)
    now = StoreTime(lambda: passed[0], lambda: began)
    passed[0] = 2.0
    assert now() == began + timedelta(seconds=2)
    now.learn(began + timedelta(hours=1))
    passed[0] = 5.0
    assert now() == began + timedelta(hours=1, seconds=3)
    now.learn(began)
    assert now() == began + timedelta(hours=1, seconds=3)


async def test_the_span_of_a_failed_job_does_not_contain_its_secrets(
    board: Board, start: Start, registry: Registry
) -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    @registry.task(name="leaks")
    async def leaks(ctx: Context) -> None:
        await asyncio.sleep(0)
        raise ValueError(f"cannot log in with {ctx.secrets['KEY']}")

    job = board.pin("leaks", secrets={"KEY": "correct horse"})
    start(tracing=AttemptSpans(provider.get_tracer("test")))
    await board.until_state(job, "failed")
    (span,) = exporter.get_finished_spans()
    assert "correct horse" not in span.to_json()
    assert "correct horse" not in job.failure.error
