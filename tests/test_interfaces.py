"""What a store and a server both offer is generated from the HTTP clients."""

from __future__ import annotations

import inspect
import shutil
from pathlib import Path

import pytest
from tools import interfaces

from interlock.remote import interfaces as protocols
from interlock.remote.http_client import ApiClient
from interlock.remote.records import HttpJournal
from interlock.remote.services import HttpServices

SRC = Path(__file__).parents[1] / "src"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the HTTP clients, which a test may change."""
    shutil.copytree(SRC / "interlock" / "remote", tmp_path / "interlock" / "remote")
    return tmp_path


def test_the_generated_interfaces_are_those_of_the_present_clients() -> None:
    assert interfaces.main(["--check"]) == 0


def test_every_service_of_a_server_has_an_interface_with_its_public_methods() -> None:
    services = list(interfaces.services_in())
    assert len(services) > 15
    for service in services:
        protocol = getattr(protocols, service.protocol)
        for method in service.methods():
            assert inspect.getdoc(getattr(protocol, method.name)), (service.protocol, method.name)
        assert isinstance(inspect.getattr_static(protocols.Services, service.name), property)


def test_only_what_a_store_has_in_another_form_is_left_out() -> None:
    offered = {service.name for service in interfaces.services_in()}
    there = set(vars(HttpServices(ApiClient("http://a"), clock=lambda: None)))
    assert there - offered == interfaces.ONLY_HTTP
    assert hasattr(HttpJournal, "close")
    assert not hasattr(protocols.JournalApi, "close")


def test_a_client_that_was_changed_makes_the_interfaces_stale(copy: Path) -> None:
    assert not interfaces.stale(copy)
    changed = copy / "interlock" / "remote" / "schedules.py"
    changed.write_text(changed.read_text().replace("count: int = 10", "count: int = 20"))
    assert interfaces.stale(copy)


def test_a_new_method_of_a_client_appears_in_its_interface(copy: Path) -> None:
    changed = copy / "interlock" / "remote" / "schedules.py"
    head = "    async def skip(self, name: str, *, limit: int = MAX_PAGE) -> ScheduleView:"
    changed.write_text(f'{changed.read_text()}\n{head}\n        """Skip the next fire."""\n')
    assert "async def skip(self, name: str, *, limit: int = ...) -> ScheduleView:" in interfaces.made(copy)


def test_a_context_manager_and_an_iterator_are_declared_as_callers_use_them() -> None:
    made = interfaces.made()
    assert "    def logs(self, job_id: str) -> AsyncIterator[Chunk]:" in made
    assert "-> AbstractAsyncContextManager[tuple[ArtifactView, AsyncIterator[bytes]]]:" in made
