import assert from "node:assert/strict";
import { test } from "node:test";
import { layersOf, timesOf } from "../src/lib/graph.ts";

const job = (name: string, needs: string[] = [], started = "", completed = "") => ({
  name,
  needs,
  started_at: started || null,
  completed_at: completed || null,
});

test("each job stands behind everything that it needs", () => {
  const layers = layersOf([job("deploy", ["test", "lint"]), job("test", ["build"]), job("lint"), job("build")]);
  assert.deepEqual(
    layers.map((layer) => layer.map((each) => each.name)),
    [["lint", "build"], ["test"], ["deploy"]],
  );
});

test("a job that needs one that is not there stands in front", () => {
  assert.deepEqual(layersOf([job("a", ["nobody"])]).map((layer) => layer.length), [1]);
});

test("a cycle does not hang the page", () => {
  assert.equal(layersOf([job("a", ["b"]), job("b", ["a"])]).flat().length, 2);
});

test("the critical path goes back from the job that ended last", () => {
  const jobs = [
    job("build", [], "2026-01-01T00:00:00Z", "2026-01-01T00:00:10Z"),
    job("lint", [], "2026-01-01T00:00:00Z", "2026-01-01T00:00:02Z"),
    job("test", ["build", "lint"], "2026-01-01T00:00:10Z", "2026-01-01T00:00:30Z"),
    job("docs", ["lint"], "2026-01-01T00:00:02Z", "2026-01-01T00:00:04Z"),
  ];
  assert.deepEqual([...timesOf(jobs).critical], ["test", "build"]);
});

test("nothing is critical before anything has begun", () => {
  assert.equal(timesOf([job("a"), job("b", ["a"])]).critical.size, 0);
});
