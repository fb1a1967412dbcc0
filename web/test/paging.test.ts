import assert from "node:assert/strict";
import { test } from "node:test";
import { gathered, type Page } from "../src/lib/paging.ts";

function list(...pages: readonly (readonly number[])[]): (cursor: string) => Promise<Page<number>> {
  return async (cursor) => {
    const place = Number(cursor || 0);
    return { items: pages[place] ?? [], cursor: place + 1 < pages.length ? String(place + 1) : "" };
  };
}

test("pages that ended early are followed until there is enough", async () => {
  assert.deepEqual(await gathered(list([], [1], [], [2, 3], [4]), "", 3), { items: [1, 2, 3], cursor: "4" });
});

test("the end of the list is the end", async () => {
  assert.deepEqual(await gathered(list([], [1], []), "", 3), { items: [1], cursor: "" });
});

test("after so many pages it stops, and the cursor goes on", async () => {
  const read = list([], [], [], [1]);
  const first = await gathered(read, "", 3, 2);
  assert.deepEqual(first, { items: [], cursor: "2" });
  assert.deepEqual(await gathered(read, first.cursor, 3, 2), { items: [1], cursor: "" });
});
