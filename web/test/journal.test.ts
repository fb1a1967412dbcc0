import assert from "node:assert/strict";
import { test } from "node:test";
import { filterOf, wants } from "../src/lib/journal.ts";

const entry = {
  kind: "job",
  id: "j_1",
  actor: "ann",
  steps: [{ machine: "job", event: "cancel", from: "PENDING", to: "CANCELED", owner: "operator" }],
};
const read = (said: string) => filterOf(new URLSearchParams(said));

test("an entry is wanted when every word fits it", () => {
  assert.ok(wants(read(""), entry));
  assert.ok(wants(read("kind=job&id=j_1&actor=ann&trigger=cancel&state=canceled"), entry));
  for (const other of ["kind=run", "id=j_2", "actor=bob", "trigger=retry", "state=RUNNING"])
    assert.ok(!wants(read(other), entry), other);
});

test("a state is spelled as on the command line", () => {
  assert.ok(wants(read("state=Cancelled"), entry));
});

test("a refusal has led to no state", () => {
  assert.ok(wants(read("kind=job"), { ...entry, steps: [] }));
  assert.ok(!wants(read("state=canceled"), { ...entry, steps: [] }));
});

test("words that are not of the filter are not asked for", () => {
  assert.deepEqual(read("kind=job&theme=dark&actor="), { kind: "job" });
});
