"""The requests on the page about records of your own are sent to a server with the kind of the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.docs.test_other_blocks import requests
from tests.docs.test_pages_tell_the_truth import blocks
from tests.server.running import running

from interlock.systems.kinds import lifecycles_with
from interlock.worker.imports import import_named

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "your-own-records.md"


async def test_the_server_of_the_page_accepts_the_requests_of_the_page(tmp_path: Path) -> None:
    file = tmp_path / "orders_of_the_page.py"
    file.write_text(blocks(PAGE, "python")[0], encoding="utf-8")
    kind = import_named(str(file)).ORDERS
    (script,) = (block for block in blocks(PAGE, "sh") if "curl" in block)
    answers: list[dict[str, Any]] = []
    async with running(lifecycles=lifecycles_with(declared=[kind])) as server:
        for method, address, body in requests(script):
            path = urlsplit(f"http://{address}").path
            headers = {"Content-Type": "application/json"} if body is not None else {}
            response = await server.client().request(method, path, content=body, headers=headers)
            assert response.is_success, response.text
            answers.append(response.json())
    assert [(each["id"], each["state"], each["version"]) for each in answers] == [
        ("order-18", "placed", 1),
        ("order-18", "paid", 2),
        ("order-18", "paid", 2),
    ]
