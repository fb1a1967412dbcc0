import assert from "node:assert/strict";
import { test } from "node:test";
import { between, standingAt, versionsOf } from "../src/lib/versions.ts";

const step = (machine: string, from: string, to: string, entity = "") => ({ machine, from, to, ...(entity && { entity }) });
const entries = [
  { version: 1 },
  { version: 3, steps: [step("job", "PENDING", "RUNNING"), step("attempt", "CREATED", "LEASED", "1.1")] },
  { version: 3, refusal: "its lease has ended" },
  { version: 7, steps: [step("attempt", "LEASED", "SUCCEEDED", "1.1"), step("job", "RUNNING", "COMPLETED")] },
];

test("the states at a version are those that the journal tells, also before the first step and between two entries", () => {
  assert.deepEqual(standingAt("job", entries, 1), { job: "PENDING" });
  assert.deepEqual(standingAt("job", entries, 5), { job: "RUNNING", "attempt 1.1": "LEASED" });
  assert.deepEqual(standingAt("job", entries, 7), { job: "COMPLETED", "attempt 1.1": "SUCCEEDED" });
});

test("what lies between two versions is the same in either order, and has no refusals", () => {
  assert.deepEqual(between(entries, 1, 3), [entries[1]]);
  assert.deepEqual(between(entries, 7, 1), [entries[1], entries[3]]);
});

test("every version can be compared of which something is known", () => {
  assert.deepEqual(versionsOf(entries, [9, 7], 10), [1, 3, 7, 9, 10]);
});
