import assert from "node:assert/strict";
import { test } from "node:test";
import { merge } from "../src/lib/newest.ts";

const rows = (...said: string[]) => said.map((each) => ({ id: each.charAt(0), text: each }));
const merged = (shown: string[], latest: string[]) => {
  const { rows: all, held, more } = merge(rows(...shown), rows(...latest), (row) => row.id);
  return [all.map((row) => row.text).join(" "), held, more];
};

test("rows that are shown are renewed and stay, new ones before them are held back", () => {
  assert.deepEqual(merged(["c1", "b1", "a1"], ["e1", "d1", "c2", "b1", "a2"]), ["c2 b1 a2", 2, false]);
});

test("a list grows at its end", () => {
  assert.deepEqual(merged(["c1", "b1"], ["d1", "c1", "b1", "a1"]), ["c1 b1 a1", 1, false]);
});

test("a row that comes in between would move the rows below it", () => {
  assert.deepEqual(merged(["c1", "a1"], ["c1", "b1", "a1"]), ["c1 a1", 1, false]);
});

test("a row that is not among the latest any more is still shown", () => {
  assert.deepEqual(merged(["c1", "b1", "a1"], ["d1", "c1", "b1"]), ["c1 b1 a1", 1, false]);
});

test("of more than an answer has only some are counted", () => {
  assert.deepEqual(merged(["b1", "a1"], ["z1", "y1"]), ["b1 a1", 2, true]);
});

test("an empty answer changes nothing", () => {
  assert.deepEqual(merged(["a1"], []), ["a1", 0, false]);
});
