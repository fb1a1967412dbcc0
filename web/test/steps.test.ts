import assert from "node:assert/strict";
import { test } from "node:test";
import { attemptsOf, stepsOf } from "../src/lib/steps.ts";

let second = 0;
const line = (level: string, text = level, attempt = 1) => ({
  at: new Date(Date.UTC(2026, 0, 1, 0, 0, second++)).toISOString(),
  level,
  text,
  shard: 1,
  attempt,
});
const told = (steps: ReturnType<typeof stepsOf>) => steps.map((step) => [step.title, step.state, step.lines.length]);

test("a log is cut into steps by its levels, and those that have not begun are there too", () => {
  const lines = [
    line("info", "fetching"),
    line("step", "The step 'build' begins."),
    line("stdout"),
    line("passed"),
    line("step"),
    line("stderr"),
  ];
  assert.deepEqual(told(stepsOf(lines, ["build", "test", "pack"], false)), [
    ["Before the steps", "", 1],
    ["build", "passed", 3],
    ["test", "running", 2],
    ["pack", "waiting", 0],
  ]);
});

test("what ends a job ends its steps", () => {
  const lines = [line("step"), line("failed"), line("step"), line("stdout"), line("failed"), line("error", "traceback")];
  assert.deepEqual(told(stepsOf(lines, ["lint", "test", "pack"], true)), [
    ["lint", "failed", 2],
    ["test", "failed", 3],
    ["pack", "left out", 0],
    ["After the steps", "", 1],
  ]);
  assert.deepEqual(told(stepsOf([line("step"), line("stdout")], ["lint"], true)), [["lint", "stopped", 2]]);
  assert.deepEqual(told(stepsOf([line("step"), line("error")], ["lint"], true)), [["lint", "failed", 2]]);
});

test("a step lasts from its first line to its last, or until now", () => {
  const lines = [line("step"), line("stdout"), line("passed"), line("step")];
  const [first, second] = stepsOf(lines, [], false);
  assert.equal(first?.from, lines[0]?.at);
  assert.equal(first?.to, lines[2]?.at);
  assert.equal(second?.from, lines[3]?.at);
  assert.equal(second?.to, undefined);
});

test("without titles a step is called by its line, and a log without steps is one piece", () => {
  assert.deepEqual(told(stepsOf([line("step", "training"), line("passed")], [], true)), [["training", "passed", 2]]);
  assert.deepEqual(told(stepsOf([line("stdout"), line("failed", "a level of somebody's own")], [], true)), [["Log", "", 2]]);
  assert.deepEqual(stepsOf([], [], true), []);
});

test("each attempt has a log of its own, the latest first", () => {
  const lines = [line("stdout", "one", 1), line("stdout", "two", 2), line("stdout", "late", 1)];
  assert.deepEqual(
    attemptsOf(lines).map(([name, own]) => [name, own.map((each) => each.text)]),
    [
      ["1.2", ["two"]],
      ["1.1", ["one", "late"]],
    ],
  );
});
