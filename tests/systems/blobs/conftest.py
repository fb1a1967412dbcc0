"""A bucket: `moto`, a server that speaks S3 over HTTP. It is no Amazon: it does not check signatures."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import httpx2
import pytest
from tests.waiting import PATIENCE_S

from interlock.systems.blobs import BlobSettings

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """Where it is."""
    from moto.server import ThreadedMotoServer  # half a second, which is spent where it is used

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3: str, monkeypatch: pytest.MonkeyPatch) -> BlobSettings:
    """A fresh one."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "something")
    name = f"bucket-{next(_NUMBERS)}"
    httpx2.put(f"{s3}/{name}", timeout=PATIENCE_S).raise_for_status()
    return BlobSettings(url=f"s3://{name}/some/where", endpoint=s3)
