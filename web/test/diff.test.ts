import assert from "node:assert/strict";
import { test } from "node:test";
import { differences, recall, remember } from "../src/lib/diff.ts";

test("only what differs is told, by its place", () => {
  const before = { task: "a", input: { to: "Ada", tags: ["x", "y"] }, gone: 1 };
  const after = { task: "a", input: { to: "Bob", tags: ["x", "y", "z"] }, came: { at: 2 } };
  assert.deepEqual(differences(before, after).shown, [
    { path: "input.to", before: '"Ada"', after: '"Bob"' },
    { path: "input.tags[2]", before: "", after: '"z"' },
    { path: "gone", before: "1", after: "" },
    { path: "came", before: "", after: '{"at":2}' },
  ]);
});

test("the same is the same, whatever the order of its fields", () => {
  assert.deepEqual(differences({ a: 1, b: [{ c: null }] }, { b: [{ c: null }], a: 1 }), { shown: [], more: 0 });
});

test("a value that becomes one of another shape is told whole", () => {
  assert.deepEqual(differences({ a: [1] }, { a: { b: 1 } }).shown, [{ path: "a", before: "[1]", after: '{"b":1}' }]);
  assert.deepEqual(differences(1, "1").shown, [{ path: "", before: "1", after: '"1"' }]);
});

test("large bodies give so many differences of so many characters, and the number of the others", () => {
  const list = (text: string) => Array.from({ length: 5_000 }, (_, place) => text.repeat(2_000) + place);
  const { shown, more } = differences(list("a"), list("b"));
  assert.equal(shown.length, 200);
  assert.equal(more, 4_800);
  assert.ok(shown.every((one) => one.before.length <= 400 && one.before.endsWith("…")));
});

test("a body as deep as JSON can be does not break the page", () => {
  const deep = (value: unknown) => JSON.parse("[".repeat(5_000) + JSON.stringify(value) + "]".repeat(5_000));
  assert.equal(differences(deep(1), deep(2)).shown.length, 1);
});

test("names that mean something to JavaScript are names like any other", () => {
  const before = JSON.parse('{"__proto__": 1, "constructor": 2}');
  const after = JSON.parse('{"__proto__": 3, "constructor": 2, "toString": 4}');
  assert.deepEqual(differences(before, after).shown.map((one) => one.path), ["__proto__", "toString"]);
});

test("of the versions that were seen the newest are kept", () => {
  for (let version = 1; version <= 50; version++) remember("job j_1", version, { version });
  remember("job j_1", 50, { version: "the same again" });
  const kept = recall("job j_1");
  assert.equal(kept.size, 20);
  assert.deepEqual([...kept.keys()].slice(-2), [49, 50]);
  for (let other = 0; other < 100; other++) remember(`job j_${other + 2}`, 1, {});
  assert.equal(recall("job j_1").size, 0);
});
