"""A runner that speaks the protocol by hand."""

from __future__ import annotations

from typing import Any

import httpx2


class Runner:
    """Says what a runner says, one request at a time."""

    def __init__(self, client: httpx2.AsyncClient, name: str = "runner-7") -> None:
        self.client = client
        self.name = name

    async def lease(self, **fields: Any) -> httpx2.Response:
        """Ask for work."""
        body = {"runner_id": self.name, **fields}
        return await self.client.post("/api/runner/lease", json=body)

    async def grants(self, **fields: Any) -> list[dict[str, Any]]:
        """What there is to do."""
        response = await self.lease(**fields)
        assert response.status_code == 200, response.text
        found: list[dict[str, Any]] = response.json()["grants"]
        return found

    async def grant(self, **fields: Any) -> dict[str, Any]:
        """The one thing that there is to do."""
        (found,) = await self.grants(**fields)
        return found

    async def say(self, what: str, token: str, sequence: int = 1, **more: Any) -> httpx2.Response:
        """One message."""
        return await self.client.post(f"/api/runner/{what}", json=self.message(token, sequence, **more))

    def message(self, token: str, sequence: int = 1, **more: Any) -> dict[str, Any]:
        """What all messages have."""
        return {"token": token, "runner_id": self.name, "sequence": sequence, **more}


def done(result: Any = None) -> dict[str, Any]:
    """The outcome of something that went well."""
    return {"outcome": {"outcome": "succeeded", "result": result}}
