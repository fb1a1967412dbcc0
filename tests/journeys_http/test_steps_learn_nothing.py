"""A hostile step looks for the credentials of its worker, as root and as an ordinary user, and finds none."""

from __future__ import annotations

import os
import secrets
import string
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from tests.effort import pick
from tests.journeys_http.serving import Served
from tests.privileges import (
    ME,
    ROOT,
    User,
    make_readable,
    needs_a_user_of_its_own,
    ordinary,
    path_with_bubblewrap,
)

from interlock.wire.jobs import JobSpec

PLAIN = string.ascii_lowercase + string.digits
TURNED = PLAIN[13:26] + PLAIN[:13] + PLAIN[31:] + PLAIN[26:31]
THIEF = r"""
(
warden=$PPID
worker=$(sed -n 's/^PPid:\t*//p' /proc/$warden/status)
for process in $warden $worker; do
  for file in environ mem; do (: < /proc/$process/$file) && echo "readable: $file"; done
  tr '\0' '\n' < /proc/$process/environ
  tr '\0' '\n' < /proc/$process/cmdline
done
env
cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\0' '\n' | grep -a -e il_ -e topsecret
cat "$TOKEN_FILE"
echo "user: $(id -u)"
ls -d /proc/[0-9]* | wc -l | sed 's/^/processes: /'
cat /proc/net/dev | grep -c : | sed 's/^/networks: /'
) 2>/dev/null | tr 'a-z0-9' 'n-za-m5-90-4'
"""
"""What a pull request may contain. What it has read goes into the log turned, so that no mask hides it."""
USERS = ["root", "ordinary user"] if ROOT else ["ordinary user"]
QUICK_USERS = pick(USERS[-1:], USERS)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder that another user can reach: pytest closes its own whenever another one is started."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
def user(request: pytest.FixtureRequest) -> User:
    """Who the worker belongs to."""
    return ME if request.param == "root" else ordinary()


@contextmanager
def running(
    served: Served, user: User, words: tuple[str, ...], environment: Mapping[str, str], given: str = ""
) -> Iterator[None]:
    """Run the installed program, not a fork of the tests: the environment that `/proc` shows is its own."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("INTERLOCK_")}
    with (served.folder / "worker.log").open("w") as log:
        process = subprocess.Popen(
            [*user.command, *words],
            cwd="/",
            env={**inherited, **user.variables, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            text=True,
        )
        assert process.stdin is not None
        with process.stdin as stdin:
            stdin.write(given)
        try:
            yield
        finally:
            process.kill()
            process.wait()


def start(url: str, *options: str) -> tuple[str, ...]:
    """Return the words that start a worker for untrusted steps."""
    return ("worker", "start", "--shell", "--store", url, "--queue", "untrusted", *options)


async def stolen(served: Served, token_file: str = "") -> str:
    """Have the thief run, and return everything that it has found."""
    steps = {"run": THIEF, "env": {"TOKEN_FILE": token_file}}
    spec = JobSpec(
        task="interlock.shell",
        queue="untrusted",
        input=msgspec.Raw(msgspec.json.encode(steps)),
        secrets_withheld=True,
    )
    job = await served.ended(await served.il.services.jobs.submit(spec))
    assert job.state == "COMPLETED", f"{job.failure}"
    lines = [line async for chunk in served.il.services.jobs.logs(job.id) for line in chunk.lines]
    output = "\n".join(line.text for line in lines if line.level == "stdout")
    found = output.translate(str.maketrans(TURNED, PLAIN))
    assert "user: " in found, "the thief has looked everywhere"
    return found


@pytest.mark.parametrize("user", QUICK_USERS, indirect=True)
@pytest.mark.parametrize(
    "how",
    ["variable", *(pytest.param(how, marks=pytest.mark.long) for how in ("argument", "standard input"))],
)
async def test_a_step_finds_the_token_of_its_worker_nowhere(served: Served, user: User, how: str) -> None:
    token = served.tokens["runners"]
    options = {"variable": (), "argument": ("--token", token), "standard input": ("--token-file", "-")}[how]
    variables = {"INTERLOCK_TOKEN": token} if how == "variable" else {}
    given = token if how == "standard input" else ""
    with running(served, user, start(served.server.url, *options), variables, given):
        found = await stolen(served)
    assert token not in found
    assert "readable: mem" not in found
    assert (ROOT and user is ME) or "readable" not in found, "some kernels show root an environment"
    assert served.server.url in found, "it has seen the command line of its worker"


@pytest.mark.parametrize("user", QUICK_USERS, indirect=True)
async def test_a_step_finds_no_secret_of_a_worker_on_a_store(served: Served, user: User) -> None:
    secret = f"topsecret-{secrets.token_hex(8)}"  # of no other worker, which may be starting
    make_readable(served.folder, user)
    with running(served, user, start(served.url), {"INTERLOCK_SECRET_DEPLOY": secret}):
        found = await stolen(served)
    assert secret not in found
    assert "readable: mem" not in found


@pytest.mark.parametrize("user", QUICK_USERS, indirect=True)
async def test_a_step_of_a_pool_finds_neither_the_token_nor_the_url_of_any_process(
    served: Served, user: User
) -> None:
    module = served.folder / "nothing.py"
    module.write_text("from interlock import task\n\n@task\ndef nothing() -> None:\n    pass\n")
    make_readable(served.folder, user)
    token, url = served.tokens["runners"], served.server.url
    words = ("supervisor", str(module), "--workers", "2", "--queue", "untrusted")
    with running(served, user, words, {"INTERLOCK_TOKEN": token, "INTERLOCK_URL": url}):
        found = await stolen(served)
    assert token not in found
    assert url not in found, "the URL of a database may have a password in it"


@pytest.mark.parametrize(
    ("user", "kind"),
    [
        *([("root", "user"), *pick([], [("root", "bubblewrap")])] if ROOT else []),
        ("ordinary user", "bubblewrap"),
    ],
    indirect=["user"],
)
async def test_an_isolated_step_reads_neither_processes_nor_files_of_its_worker(
    served: Served, user: User, kind: str
) -> None:
    needs_a_user_of_its_own(user)
    token = served.tokens["runners"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "token"
        file.write_text(token)
        file.chmod(0o600)
        make_readable(Path(folder), user)
        words = start(served.server.url, "--token-file", str(file), "--isolate", kind)
        more = ("--no-network", "--mount", folder) if kind == "bubblewrap" else ()
        with running(served, user, (*words, *more), {"PATH": path_with_bubblewrap()}):
            found = await stolen(served, str(file))
    assert token not in found
    assert "user: 0\n" not in found or user is not ME
    if kind == "bubblewrap":
        assert served.server.url not in found, "it sees no process but its own"
        assert "networks: 1" in found, "only the loopback"
    else:
        assert "readable" not in found
