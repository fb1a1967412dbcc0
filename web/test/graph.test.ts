import assert from "node:assert/strict";
import { test } from "node:test";
import { itemsOf, layersOf, linesTo, placesOf, timesOf } from "../src/lib/graph.ts";

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

test("variants of a matrix are one item that needs what they need", () => {
  const items = itemsOf([
    job("build"),
    job("test (a)", ["build"], "2026-01-01T00:00:10Z", "2026-01-01T00:00:20Z"),
    job("test (b)", ["build"], "2026-01-01T00:00:12Z", "2026-01-01T00:00:30Z"),
    job("alone (x)", ["build"]),
    job("deploy", ["test (a)", "test (b)", "alone (x)"]),
  ]);
  assert.deepEqual(
    items.map(({ name, needs, jobs }) => [name, needs, jobs.length]),
    [
      ["build", [], 1],
      ["test", ["build"], 2],
      ["alone (x)", ["build"], 1],
      ["deploy", ["test", "alone (x)"], 1],
    ],
  );
});

test("a variant that needs another one of its matrix does not need itself", () => {
  const items = itemsOf([job("test (a)"), job("test (b)", ["test (a)"])]);
  assert.deepEqual(
    items.map(({ name, needs }) => [name, needs]),
    [["test", []]],
  );
});

test("a line that follows from the others is not drawn", () => {
  const items = itemsOf([job("a"), job("b", ["a"]), job("c", ["a", "b"]), job("d", ["c", "a"])]);
  assert.deepEqual(
    items.map((item) => linesTo(item, items)),
    [[], ["a"], ["b"], ["c"]],
  );
});

test("what is unfolded grows downwards and moves what is below", () => {
  const layers = layersOf(itemsOf([job("m (1)"), job("m (2)"), job("z")]));
  const heightOf = (item: { jobs: readonly unknown[] }) => (item.jobs.length > 1 ? 100 : 40);
  const { places, width, height } = placesOf(layers, heightOf, { width: 200, gapX: 50, gapY: 10 });
  assert.deepEqual(places.get("m"), { x: 0, y: 0, height: 100 });
  assert.deepEqual(places.get("z"), { x: 0, y: 110, height: 40 });
  assert.deepEqual([width, height], [200, 150]);
});
