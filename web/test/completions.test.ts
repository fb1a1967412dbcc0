import assert from "node:assert/strict";
import { test } from "node:test";
import { completions } from "../src/lib/completions.ts";

const WORDS = ["state:FAILED", "state:RUNNING", "queue:", "since:1h"];

test("the last word is completed, and what stands before it stays", () => {
  assert.deepEqual(completions("", WORDS), WORDS);
  assert.deepEqual(completions("state:f", WORDS), ["state:FAILED"]);
  assert.deepEqual(completions("queue:mail st", WORDS), ["queue:mail state:FAILED", "queue:mail state:RUNNING"]);
});

test("a word that is excluded is completed too, and none is offered twice", () => {
  assert.deepEqual(completions("-state:r", WORDS), ["-state:RUNNING"]);
  assert.deepEqual(completions("since:1h s", WORDS), ["since:1h state:FAILED", "since:1h state:RUNNING"]);
});
