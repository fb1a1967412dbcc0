import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes } from "../src/lib/sizes.ts";

test("a size is told in the largest unit of which there is one", () => {
  assert.deepEqual([0, 1, 999, 1000, 1234, 38_400_000, 5e15].map(bytes), [
    "0 bytes",
    "1 byte",
    "999 bytes",
    "1.0 kB",
    "1.2 kB",
    "38 MB",
    "5000 TB",
  ]);
});
