import assert from "node:assert/strict";
import { test } from "node:test";
import { exactly } from "../src/lib/exact.ts";

test("numbers are written again as they were", () => {
  for (const text of ['{"id":12345678901234567890,"rate":1.0,"few":[1,-0.5,1e400]}', "3", '"text"', "null"])
    assert.equal(JSON.stringify(exactly(text)), text);
});

test("what is no JSON is refused", () => {
  assert.throws(() => exactly("{a: 1}"), SyntaxError);
});
