"""Make a store of schema 1, in which records were hashes, and write down what is in it.

    git worktree add --detach ../old e797bd0
    PYTHONPATH=../old/src:. .venv/bin/python tests/store/redis/make_layout_1.py

writes `layout_1.json` beside this file: the commands that make the keys again, and what that code read.
In that version `builders` was called `making`.
"""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from redis import Redis
from tests.fixtures.stores.make import _commands

from interlock.store.records import Commit, Key, Note
from interlock.store.redis import RedisStore, scripts
from interlock.store.redis.codec import pack
from interlock.testing.servers import redis_server
from interlock.testing.store_contract.builders import (
    CATALOGUE,
    PACKING,
    SENDING,
    creation,
    made,
    move,
    refusal,
    request,
    waiting,
    whole_feed,
)

FAR = datetime(2150, 1, 1, tzinfo=UTC)
NAMES = (
    *("ready", "urgent", "van", "late", "label", "child"),
    *("sent", "done", "lost", "worn", "asked", "held"),
)


async def fill(store: RedisStore) -> None:
    """Leave parcels in every state and place, with steps, a refusal, a request, a hold, and some pruned."""
    past = await store.now() - timedelta(hours=1)
    await made(store, creation("gone", "delivered", note=PACKING))
    await store.prune(kind="parcel", states=("delivered",), older_than=timedelta(0))
    await waiting(store, "ready", note=PACKING)
    await waiting(store, "urgent", priority=3, labels=("big",))
    await waiting(store, "van", handler="van", note=PACKING)
    await made(store, creation("late", queue="post", ready_at=FAR, deadline_at=FAR, note=PACKING))
    await made(store, creation("label", labels=("big", "red"), deadline_at=past))
    await made(store, creation("child", parent="order-9", note=PACKING))
    [sent] = await made(store, creation("sent", queue="rail", note=PACKING))
    await made(store, move(sent, note=SENDING, deadline_at=FAR))
    await store.commit([Commit(refusals=(refusal("sent"), refusal("nobody")))])
    for name, end in (("done", "delivered"), ("lost", "lost")):
        [record] = await made(store, creation(name, note=PACKING))
        await made(store, move(record, end, note=SENDING))
    [worn] = await made(store, creation("worn", note=PACKING))
    for number in range(12):
        [worn] = await made(store, move(worn, "packed", note=Note(reason=f"{number}")))
    await store.commit([Commit(changes=(creation("asked", "lost"),), request=request("r"))])
    await waiting(store, "held", queue="rail")
    criteria = pack((["rail"], [], [], True))
    await store._links.call(scripts.CLAIM, "parcel", 10, 0, 3_600_000_000, 100, 1, criteria)


async def main() -> None:
    """Make it with the code that is imported."""
    assert scripts.SCHEMA_VERSION == 1, "This takes the code of schema 1."
    with redis_server(append_only="off") as server:
        store = RedisStore(server.url, CATALOGUE, prefix="old")
        await store.open()
        await fill(store)
        with Redis.from_url(server.url) as client:
            commands: list[Any] = [
                [word.decode(errors="surrogateescape") if isinstance(word, bytes) else word for word in words]
                for key in sorted(client.scan_iter(count=1_000))
                for words in _commands(client, key)
            ]
        records = await store.load([Key("parcel", name) for name in NAMES])
        entries = await whole_feed(store)
        await store.close()
    written = {
        "commands": commands,
        "records": msgspec.to_builtins(records),
        "entries": msgspec.to_builtins(entries),
    }
    lines = (f'"{name}": [\n' + ",\n".join(map(json.dumps, rows)) + "\n]" for name, rows in written.items())
    text = "{" + ",\n".join(lines) + "}\n"
    Path(__file__).with_name("layout_1.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
