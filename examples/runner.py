"""A runner for shell jobs in plain Python: INTERLOCK_TOKEN=il_... python runner.py URL [QUEUE...]"""

import json
import os
import signal
import sys
import time
import uuid
from subprocess import PIPE, STDOUT, Popen, TimeoutExpired
from urllib import request

SERVER, QUEUES, NAME = sys.argv[1].rstrip("/"), sys.argv[2:] or ["default"], f"runner-{os.getpid()}"
TOKEN = os.environ.get("INTERLOCK_TOKEN")
HEADERS = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {TOKEN}"} if TOKEN else {})


def post(path, body, until=float("inf")):
    """Say it until it is answered or too late: a repeat does no harm. A refusal is an answer, too."""
    while (left := until - time.monotonic()) > 0:
        asked = request.Request(f"{SERVER}/api/runner/{path}", json.dumps(body).encode(), HEADERS)
        try:
            with request.urlopen(asked, timeout=min(left, 60)) as response:
                return json.load(response)
        except OSError as trouble:  # it refuses, or is away and may come back
            if getattr(trouble, "code", 503) not in (408, 429, 500, 502, 503, 504):
                return json.load(trouble)
        time.sleep(min(max(until - time.monotonic(), 0), 0.5))
    return {"code": "LEASE_EXPIRED"}


def execute(grant):
    """Run one command, with a heartbeat now and then, whose answer says whether to stop."""
    said, alive_s = {"token": grant["token"], "runner_id": NAME, "sequence": 1}, 0.9 * grant["ttl_s"]
    command = Popen(["sh", "-c", grant["input"]["run"]], process_group=0, stdout=PIPE, stderr=STDOUT)
    until, answer, last = time.monotonic() + alive_s, {}, "release"  # unless it ends in another way
    try:
        while "code" not in answer and not answer.get("cancel_requested"):
            try:
                text = command.communicate(timeout=grant["heartbeat_every_s"])[0].decode(errors="replace")
                code, last, good = command.returncode, None, {"outcome": "succeeded", "result": text}
                bad = {"outcome": "failed", "error": f"exit code {code}", "exit_code": code, "details": text}
                return post("complete", said | {"outcome": bad if code else good}, until)
            except TimeoutExpired:
                asked_at, answer = time.monotonic(), post("heartbeat", said, until)
                said["sequence"], until = said["sequence"] + 1, asked_at + alive_s  # by our own clock
        last = None if "code" in answer else "cancel-ack"  # a lost lease gets no further report
    finally:
        if command.poll() is None:
            os.killpg(command.pid, signal.SIGKILL)
            command.wait()  # nothing is said before it is true
        if last:
            post(last, said, until)


signal.signal(signal.SIGTERM, lambda *_: sys.exit())
asked = {"runner_id": NAME, "queues": QUEUES, "wait_s": 20}
while "code" not in (work := post("lease", asked | {"claim_id": uuid.uuid4().hex})):
    for grant in work["grants"]:
        execute(grant)
sys.exit(f"{work['error']} {work['todo']}")
