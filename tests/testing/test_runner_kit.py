"""The conformance kit for runners: ours pass it, and each wrong one is caught where it is wrong."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.effort import pick
from tests.waiting import PATIENCE_S, PROGRAM_S

from interlock.testing import runner_kit
from interlock.testing.runner_kit import SCENARIOS, Check, Piece, ScenarioVerdict, check, named
from interlock.testing.runner_server import UNDER_WAY_S, KitOrchestrator, KitRequest, Pace

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "runner.py"
PROGRAM = str(Path(sys.executable).with_name("interlock"))
HASTY = Pace(
    ttl_s=2.5,
    heartbeat_every_s=0.5,
    ack_window_s=2.0,
    silence_ttl_s=2.5,
    late_s=1.0,
    patience_s=2.5,
    idle_s=60.0,
    requests_per_s=0.0,
)
"""For runners that are wrong: one that is slow as well is no less wrong."""
PATIENT = Pace(late_s=60.0, start_s=PATIENCE_S, patience_s=PATIENCE_S)
"""For our own, on a machine that stands still; each is a limit, and nothing waits for it."""
OURS = (
    "works",
    "lost-completion",
    "revoked",
)
"""What our own worker is held against in a quick run."""

WRONG = {
    "has no heartbeat": ("heartbeats", 'post("heartbeat", said, until)', "{}"),
    "sends the same heartbeat for ever": ("heartbeats", 'said["sequence"] + 1', 'said["sequence"]'),
    "speaks for another": ("works", '"runner_id": NAME, "sequence"', '"runner_id": "other", "sequence"'),
    "does everything twice": ("works", "        execute(grant)", "        execute(grant), execute(grant)"),
    "ends at a name it does not know": (
        "unknown-fields",
        '    for grant in work["grants"]:',
        '    assert not set(work) - {"grants", "now"}\n    for grant in work["grants"]:',
    ),
    "names each repeat of a claim anew": (
        "lost-lease",
        "        try:\n            with request",
        (
            '        asked.data = json.dumps(body | {"claim_id": uuid.uuid4().hex}).encode()\n'
            "        try:\n            with request"
        ),
    ),
    "says a thing only once": (
        "lost-completion",
        "            if getattr(trouble",
        '            if path == "complete":\n                return {}\n            if getattr(trouble',
    ),
    "takes a busy server for a refusal": ("busy-server", "502, 503, 504", "502, 504"),
    "does not hear that it shall stop": ("cancel", 'answer.get("cancel_requested")', 'answer.get("never")'),
    "says that it has stopped and has not": (
        "cancel",
        "os.killpg(command.pid, signal.SIGKILL)\n            command.wait()",
        "pass",
    ),
    "goes on without a lease": ("revoked", '"code" not in answer and not', "not"),
    "speaks without a lease": ("revoked", 'None if "code" in answer else "cancel-ack"', '"cancel-ack"'),
    "has no clock": ("silence", "timeout=min(left, 60)", "timeout=60"),
    "asks all the time": ("no-work", '"wait_s": 20', '"wait_s": 0'),
    "does not go": ("goes-idle", "lambda *_: sys.exit()", "signal.SIG_IGN"),
    "lets its work fall": ("goes-working", '{}, "release"', "{}, None"),
}


async def verdicts(check_: Check) -> list[ScenarioVerdict]:
    return await check(check_, lambda _: None)


def faults(results: list[ScenarioVerdict]) -> dict[str, tuple[str, ...]]:
    return {verdict.scenario: verdict.faults for verdict in results if verdict.faults}


@pytest.mark.long  # the worker passes them in a quick run
async def test_the_example_runner_passes_every_scenario_of_the_conformance_kit() -> None:
    command = (sys.executable, str(EXAMPLE), "{url}")
    results = await verdicts(Check(command=command, token="il_x", pace=PATIENT))
    assert faults(results) == {}
    assert [verdict.scenario for verdict in results] == [scenario.name for scenario in SCENARIOS]


async def test_the_worker_passes_the_scenarios_of_the_conformance_kit(tmp_path: Path) -> None:
    """But for how it goes while it works, which takes its 20 seconds and has journeys of its own."""
    tasks = tmp_path / "nothing.py"
    tasks.write_text("from interlock import task\n\n\n@task\ndef nothing() -> None: ...\n")
    words = (PROGRAM, "worker", "start", str(tasks), "--server", "{url}", "--log-level", "error")
    wanted = tuple(scenario for scenario in SCENARIOS if scenario.name != "goes-working")
    wanted = pick(tuple(scenario for scenario in wanted if scenario.name in OURS), wanted)
    results = await verdicts(Check(command=words, token="il_x", pace=PATIENT, scenarios=wanted))
    assert faults(results) == {}


async def test_each_wrong_runner_is_caught_where_it_is_wrong(tmp_path: Path) -> None:
    source = EXAMPLE.read_text(encoding="utf-8")
    room = asyncio.Semaphore(8)

    async def caught(number: int, wrong: str) -> str:
        scenario, good, bad = WRONG[wrong]
        assert source.count(good) == 1, good
        runner = tmp_path / f"wrong{number}.py"
        runner.write_text(source.replace(good, bad), encoding="utf-8")
        command = (sys.executable, str(runner), "{url}")
        async with room:
            outcomes = await verdicts(
                Check(command=command, token="il_x", pace=HASTY, scenarios=named([scenario]))
            )
        return "" if faults(outcomes) else f"{wrong}: not caught by {scenario}"

    results = await asyncio.gather(*(caught(number, wrong) for number, wrong in enumerate(WRONG)))
    assert [result for result in results if result] == []
    assert {scenario for scenario, _, _ in WRONG.values()} >= {s.name for s in SCENARIOS} - {
        "slow-answers",
        "refused-token",
    }


def test_the_report_shows_the_fault_and_the_output_of_the_runner(tmp_path: Path) -> None:
    runner = tmp_path / "runner.py"
    runner.write_text("import sys\nsys.exit('cannot begin')\n")
    words = [PROGRAM, "runner-check", "--only", "works", "--", sys.executable, str(runner), "{url}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PROGRAM_S, check=False)
    assert done.returncode == 1
    assert "✗ works" in done.stdout
    assert "→ It has ended by itself, with exit code 1." in done.stdout
    assert "cannot begin" in done.stdout
    assert "0 of 1 scenario " in done.stdout
    done = subprocess.run(
        [*words[:2], "--json", *words[2:]], capture_output=True, text=True, timeout=PROGRAM_S, check=False
    )
    assert json.loads(done.stdout)["scenario"] == "works"


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--only", "nonsense", "http://127.0.0.1:1"],
        ["https://example.org"],
        ["--quick", "x", "http://a:1"],
    ],
)
def test_a_question_that_makes_no_sense_is_reported(words: list[str]) -> None:
    done = subprocess.run(
        [PROGRAM, "runner-check", *words], capture_output=True, text=True, timeout=PROGRAM_S, check=False
    )
    assert done.returncode == 2, done.stderr


async def test_runner_check_waits_at_its_address_for_a_runner_that_is_started_separately() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    kit = await asyncio.create_subprocess_exec(
        *(
            PROGRAM,
            "runner-check",
            "--only",
            "no-work",
            "--only",
            "goes-idle",
            address,
            "--json",
        ),
        stdout=asyncio.subprocess.PIPE,
    )
    runner = await asyncio.create_subprocess_exec(sys.executable, str(EXAMPLE), address)
    try:
        output, _ = await kit.communicate()
    finally:
        runner.send_signal(signal.SIGKILL)
        await runner.wait()
    played, skipped = map(json.loads, output.splitlines())
    assert (played["scenario"], played["faults"], kit.returncode) == ("no-work", [], 0)
    assert "after --" in skipped["skipped"]


@pytest.mark.parametrize("lost", [False, True], ids=["answered", "answer-lost"])
async def test_a_heartbeat_in_flight_at_the_completion_is_accepted_and_a_later_one_is_a_fault(
    lost: bool,
) -> None:
    """A worker renews its lease until it knows that its completion has arrived."""
    orchestrator = KitOrchestrator(Pace(), "")
    orchestrator.put("shop.send", {})
    await _tell(orchestrator, "lease", runner_id="r", limit=1, acknowledge=True)
    (lease,) = orchestrator.leases.values()
    fields = {"token": lease.grant.token, "runner_id": "r"}
    await _tell(orchestrator, "complete", **fields, sequence=1, outcome={"outcome": "succeeded"})
    if lost:
        lease.ended_at = None

    await _tell(orchestrator, "heartbeat", **fields, sequence=2)
    assert orchestrator.faults == []

    lease.ended_at = orchestrator.clock() - UNDER_WAY_S - 1.0
    await _tell(orchestrator, "heartbeat", **fields, sequence=3)
    assert orchestrator.faults == ["It has sent a heartbeat after it had reported how the attempt ended."]


async def _tell(orchestrator: KitOrchestrator, what: str, **message: object) -> None:
    await orchestrator.respond(
        KitRequest("POST", f"/api/runner/{what}", "", json.dumps(message).encode()), what
    )


def test_a_process_that_got_the_id_of_an_ended_job_is_neither_taken_for_it_nor_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Piece(tmp_path, 1)
    with subprocess.Popen(["sleep", "600"]) as other:
        job.pid_file.write_text(str(other.pid))
        taken_for_the_job = [job.running]
        monkeypatch.setattr(runner_kit, "began", lambda _: "later")
        taken_for_the_job.append(job.running)
        assert taken_for_the_job == [True, False]
        job.kill()
        assert other.poll() is None
        monkeypatch.undo()
        job.kill()
    assert other.returncode == -signal.SIGKILL
