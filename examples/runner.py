"""A runner for shell jobs in plain Python: INTERLOCK_TOKEN=il_... python runner.py URL [QUEUE...]"""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from urllib import error, request

SERVER, QUEUES, NAME = sys.argv[1].rstrip("/"), sys.argv[2:] or ["default"], f"runner-{os.getpid()}"
TOKEN = os.environ.get("INTERLOCK_TOKEN")
HEADERS = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {TOKEN}"} if TOKEN else {})


def post(path, body):
    """Say it until it is answered: a repeat does no harm. What the server refuses is an answer, too."""
    while True:
        asked = request.Request(f"{SERVER}/api/runner/{path}", json.dumps(body).encode(), HEADERS)
        try:
            with request.urlopen(asked, timeout=60) as response:
                return json.load(response)
        except error.HTTPError as refused:
            if refused.code not in (408, 429, 500, 502, 503, 504):
                return json.load(refused)
        except OSError:
            pass  # it is away, and may come back
        time.sleep(1)


def execute(grant):
    """Run one command, with a heartbeat now and then, whose answer says whether to stop."""
    said = {"token": grant["token"], "runner_id": NAME, "sequence": 1}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    command = subprocess.Popen(["sh", "-c", grant["input"]["run"]], process_group=0, **pipes)
    while True:
        try:
            text = command.communicate(timeout=grant["heartbeat_every_s"])[0].decode(errors="replace")
            break
        except subprocess.TimeoutExpired:
            answer = post("heartbeat", said)
            said["sequence"] += 1
            if "code" in answer or answer.get("cancel_requested"):  # it is not ours any more, or not wanted
                os.killpg(command.pid, signal.SIGKILL)
                command.communicate()
                return post("cancel-ack", said)
    outcome = {"outcome": "succeeded", "result": text}
    if command.returncode:
        failed = {"error": f"exit code {command.returncode}", "exit_code": command.returncode}
        outcome = {"outcome": "failed", "details": text, **failed}
    return post("complete", {**said, "outcome": outcome})


while True:
    work = post("lease", {"runner_id": NAME, "queues": QUEUES, "claim_id": uuid.uuid4().hex, "wait_s": 20})
    if "code" in work:
        sys.exit(f"{work['error']} {work['todo']}")
    for grant in work["grants"]:
        execute(grant)
