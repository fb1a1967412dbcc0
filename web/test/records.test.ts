import assert from "node:assert/strict";
import { test } from "node:test";
import { idsIn, kindOf, pageOf } from "../src/lib/records.ts";

test("ids in a sentence are found, and nothing that only looks like one", () => {
  assert.deepEqual(idsIn("interlock worker resume w_0a52987410e2"), ["interlock worker resume ", "w_0a52987410e2", ""]);
  assert.deepEqual(idsIn("x_0a52987410e2 j_0a5 jj_0a52987410e2"), ["x_0a52987410e2 j_0a5 jj_0a52987410e2"]);
});

test("a record has the page of its kind, or the one that every kind has", () => {
  assert.equal(pageOf(kindOf("w_0a52987410e2"), "w_0a52987410e2"), "/workers/w_0a52987410e2");
  assert.equal(pageOf("parcel", "a/b"), "/records/parcel/a%2Fb");
  assert.equal(kindOf("hello"), "");
});
