import assert from "node:assert/strict";
import { test } from "node:test";
import { aligned, differencesOf } from "../src/lib/differences.ts";
import { noteStep, timeFor } from "../src/lib/pace.ts";

test("only what differs between simulations is a row, by its dotted name", () => {
  const found = differencesOf([
    { people: 500, town: { beds: 3, name: "A" }, days: [1, 2] },
    { people: 500, town: { beds: 4, name: "A" }, days: [1, 3] },
    { people: 500, town: { beds: 3, name: "A" }, days: [1, 2], seed: null },
  ]);
  assert.deepEqual(found.rows, [
    { name: "town.beds", values: ["3", "4", "3"] },
    { name: "days", values: ["[1,2]", "[1,3]", "[1,2]"] },
    { name: "seed", values: [undefined, undefined, "null"] },
  ]);
  assert.equal(found.same, 2);
});

test("curves with samples at different steps share one axis", () => {
  const found = aligned([
    { at: [1, 3], values: [10, 30] },
    { at: [2, 3], values: [5, null] },
  ]);
  assert.deepEqual(found, {
    at: [1, 2, 3],
    values: [
      [10, null, 30],
      [null, 5, null],
    ],
  });
});

test("the time that is left follows the pace of the last minute, and begins anew after a step back", () => {
  assert.equal(timeFor("a", 10), undefined);
  noteStep("a", 10, 0);
  noteStep("a", 10, 1_000);
  assert.equal(timeFor("a", 10), undefined);
  noteStep("a", 20, 2_000);
  assert.equal(timeFor("a", 10), 2_000);
  noteStep("a", 30, 100_000);
  noteStep("a", 50, 102_000);
  assert.equal(timeFor("a", 10), 1_000);
  noteStep("a", 40, 103_000);
  assert.equal(timeFor("a", 10), undefined);
});
