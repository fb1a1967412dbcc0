"""Records of any kind: listed and shown from the kind's declaration, also of kinds that users declare."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.lifecycles import ARRIVED, PARCEL, SENT, move, pack, recalling
from tests.server.running import Running, any_port, running

from interlock.systems.catalogue import CATALOGUE
from interlock.systems.kinds import lifecycles_with
from interlock.wire.access import Role


async def asked(server: Running, path: str, token: str | None = None) -> tuple[int, dict[str, Any]]:
    answer = await server.client(token).get(path)
    return answer.status_code, answer.json()


async def test_a_lifecycle_of_a_user_is_listed_and_shown_from_its_table_alone() -> None:
    servers: list[Running] = []
    lifecycles = lifecycles_with([PARCEL])
    async with running(lifecycles=lifecycles, more=(recalling(servers),)) as server:
        servers.append(server)
        for name in ("a", "b", "c"):
            await pack(server, name, weight_g=7)
        await move(server, "b", "send", SENT)
        _, machines = await asked(server, "/api/machines")
        recorded = {one["name"]: one.get("recorded", True) for one in machines["machines"]}
        assert (recorded["parcel"], recorded["job"], recorded["attempt"]) == (True, True, False)
        _, standing = await asked(server, "/api/machines/parcel/standing")
        assert {one["state"]: one["number"] for one in standing["states"]} == {"packed": 2, "sent": 1}
        status, page = await asked(server, "/api/records/parcel")
        assert status == 200
        assert [record["id"] for record in page["records"]] == ["c", "b", "a"]
        assert "body" not in page["records"][0]
        _, page = await asked(server, "/api/records/parcel?state=sent,arrived")
        assert [record["id"] for record in page["records"]] == ["b"]
        _, shown = await asked(server, "/api/records/parcel/b")
        assert (shown["state"], shown["version"], shown["body"]) == ("sent", 2, {"weight_g": 7})
        (action,) = shown["actions"]
        assert action["request"] == "/api/parcels/b/recall"
        assert (action["event"], action["stops"]) == ("recall", True)
        _, story = await asked(server, "/api/records/parcel/b/history")
        assert [entry["reason"] for entry in story["entries"]] == ["ordered", "because of send"]
        await move(server, "b", "arrive", ARRIVED)
        _, shown = await asked(server, "/api/records/parcel/b")
        assert "actions" not in shown  # the table ignores what is over: there is nothing to press
        _, entries = await asked(server, "/api/journal?kind=parcel")
        assert len(entries["entries"]) == 5


async def test_records_are_paged_and_errors_for_unknown_kinds_and_states_list_the_allowed_ones() -> None:
    async with running() as server:
        made = [await server.submit() for _ in range(5)]
        _, page = await asked(server, "/api/records/job?limit=3")
        _, rest = await asked(server, f"/api/records/job?limit=3&cursor={page['cursor']}")
        assert {record["id"] for record in (*page["records"], *rest["records"])} == set(made)
        assert (len(page["records"]), rest["cursor"]) == (3, "")
        status, problem = await asked(server, "/api/records/attempt")
        assert (status, problem["code"]) == (404, "unknown_record_kind")
        assert problem["allowed"] == list(CATALOGUE)
        status, problem = await asked(server, "/api/records/job?state=arrived")
        assert (status, problem["code"]) == (422, "unknown_state")
        assert "RUNNING" in problem["allowed"]
        _, page = await asked(server, "/api/records/job?state=pending&limit=1")
        assert page["records"][0]["state"] == "PENDING"
        for path in ("/api/records/job/j_000000000000", "/api/records/job/j_000000000000/history"):
            status, problem = await asked(server, path)
            assert (status, problem["code"]) == (404, "unknown_record")
            assert "j_000000000000" in problem["error"]


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
async def test_a_body_is_for_admins_and_only_actions_that_are_allowed_are_shown(role: Role) -> None:
    async with running(settings=any_port(tokens_required=True)) as server:
        job = await server.submit(queue="ci")
        token, admin = await server.token(role), await server.token(Role.ADMIN, "root")
        _, shown = await asked(server, f"/api/records/job/{job}", token)
        assert "body" not in shown
        assert [one["event"] for one in shown.get("actions", ())] == (
            ["cancel"] if role is Role.OPERATOR else []
        )
        _, shown = await asked(server, f"/api/records/job/{job}", admin)
        assert shown["body"]["task"] == "shop.send"
        for path in ("/api/records/token", "/api/records/session"):
            assert (await asked(server, path, token))[0] == 403
            assert (await asked(server, path, admin))[0] == 200
        confined = await server.token(Role.ADMIN, "mine", queues=("ci",))
        for path in ("/api/records/job", f"/api/records/job/{job}", f"/api/records/job/{job}/history"):
            status, problem = await asked(server, path, confined)
            assert (status, problem["code"]) == (403, "not_allowed")


async def test_a_lifecycle_cannot_take_the_name_of_another() -> None:
    with pytest.raises(ValueError, match="parcel"):
        lifecycles_with([PARCEL, PARCEL])
    with pytest.raises(ValueError, match="figures"):
        lifecycles_with([type("Named", (), {"name": "figures"})()])
