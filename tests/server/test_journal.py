"""GET /api/journal: by kind, entity, state, actor and trigger, from a cursor on or the newest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.server.lifecycles import PARCEL, SENT, move, pack
from tests.server.running import Running, running

from interlock.server.api import journal
from interlock.systems.kinds import lifecycles_with


@pytest.fixture
async def story(client: httpx2.AsyncClient, server: Running) -> list[str]:
    """Four jobs: two wait, one is canceled by ann, one is done."""
    jobs = [await server.submit() for _ in range(4)]
    await server.parts.runtime.jobs.cancel(jobs[1], actor="ann", reason="enough")
    await server.work(jobs[0])
    return jobs


async def found(client: httpx2.AsyncClient, **filters: str) -> list[dict[str, Any]]:
    answer = await client.get("/api/journal", params=filters)
    assert answer.status_code == 200, answer.text
    entries: list[dict[str, Any]] = answer.json()["entries"]
    return entries


async def test_entries_are_found_by_state_actor_and_trigger_alone_and_together(
    client: httpx2.AsyncClient, story: list[str]
) -> None:
    assert [entry["id"] for entry in await found(client, actor="ann")] == [story[1]]
    assert [entry["id"] for entry in await found(client, state="completed")] == [story[0]]
    assert [entry["id"] for entry in await found(client, trigger="cancel", kind="job")] == [story[1]]
    assert await found(client, actor="ann", state="COMPLETED") == []
    assert {entry["id"] for entry in await found(client, kind="job", state="CANCELED", actor="ann")} == {
        story[1]
    }


async def test_the_newest_journal_entries_are_returned_first_with_a_cursor_for_later_entries(
    client: httpx2.AsyncClient, server: Running, story: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = await client.get("/api/journal", params={"newest": "true", "kind": "job", "limit": "2"})
    page = answer.json()
    everything = await found(client, kind="job")
    assert page["entries"] == everything[::-1][:2]
    later = await server.submit()
    assert [entry["id"] for entry in await found(client, after=page["cursor"])] == [later]
    assert [entry["id"] for entry in await found(client, newest="true", actor="ann")] == [story[1]]
    # A long journal is answered from what the server has heard of lately.
    monkeypatch.setattr(journal, "PAGE", 2)
    await server.parts.following.round()
    last = await server.submit()
    await server.parts.following.round()
    assert (await found(client, newest="true", limit="1"))[0]["id"] == last


async def test_a_server_that_was_started_again_shows_the_end_of_a_long_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "PAGE", 5)
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with running(url) as before:
        ids = [await before.submit() for _ in range(30)]
    async with running(url) as again:
        answer = await again.client().get(
            "/api/journal", params={"newest": "true", "kind": "job", "limit": "5"}
        )
        page = answer.json()
        assert [entry["id"] for entry in page["entries"]] == ids[-1:-6:-1]
        assert page["gap"]
        later = await again.submit()
        assert [entry["id"] for entry in await found(again.client(), after=page["cursor"])] == [later]


async def test_the_story_of_one_entity_is_read_by_its_index(
    client: httpx2.AsyncClient, server: Running, story: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = await found(client, kind="job", id=story[0])
    monkeypatch.setattr(journal, "PAGE", 1)
    monkeypatch.setattr(journal, "MAX_PAGES", 1)
    assert await found(client, kind="job", id=story[0], newest="true") == whole[::-1]


async def test_an_invalid_journal_filter_is_refused_with_a_remedy_and_the_allowed_states(
    client: httpx2.AsyncClient,
) -> None:
    for query, code in (
        ({"state": "arrived"}, "unknown_state"),
        ({"state": "arrived", "kind": "job"}, "unknown_state"),
        ({"trigger": "explode"}, "unknown_event"),
        ({"newest": "true", "after": "1"}, "bad_request"),
    ):
        answer = await client.get("/api/journal", params=query)
        assert (answer.status_code, answer.json()["code"]) == (422, code)
        assert answer.json()["todo"]
    answer = await client.get("/api/journal", params={"state": "arrived", "kind": "job"})
    assert set(answer.json()["allowed"]) >= {"RUNNING", "EXPIRED"}  # a job holds attempts and leases


async def test_lifecycles_of_users_are_filtered_by_their_own_states_and_events() -> None:
    async with running(lifecycles=lifecycles_with([PARCEL])) as server:
        await pack(server, "a")
        await move(server, "a", "send", SENT)
        client = server.client()
        assert [entry["id"] for entry in await found(client, state="sent", trigger="send")] == ["a"]
