import assert from "node:assert/strict";
import { test } from "node:test";
import { fieldsOf, NotAValue, objectOf } from "../src/lib/schema.ts";

const HTTP = {
  $ref: "#/$defs/HttpSpec",
  $defs: {
    HttpSpec: {
      type: "object",
      properties: {
        method: { type: "string", default: "GET" },
        headers: { type: "object", additionalProperties: { type: "string" }, default: {} },
        expect: { type: "array", items: { type: "integer" }, default: [] },
        timeout_s: { type: "number", default: 10.0 },
        verify: { type: "boolean", default: true },
        url: { type: "string" },
        cwd: { anyOf: [{ type: "string" }, { type: "null" }], default: null },
        command: { anyOf: [{ type: "array" }, { type: "string" }] },
        policy: { $ref: "#/$defs/Policy", default: "all" },
        path: { type: "array", items: { type: "string" }, default: [] },
      },
      required: ["url"],
    },
    Policy: { enum: ["all", "majority"] },
  },
};
const fields = fieldsOf(HTTP);

test("each property is a field of its kind, those that are required first", () => {
  assert.deepEqual(
    fields.map((field) => [field.name, field.kind, field.initial]),
    [
      ["url", "text", ""],
      ["method", "text", "GET"],
      ["headers", "json", ""],
      ["expect", "json", ""],
      ["timeout_s", "number", "10"],
      ["verify", "flag", "true"],
      ["cwd", "text", ""],
      ["command", "json", ""],
      ["policy", "choice", "all"],
      ["path", "lines", ""],
    ],
  );
  assert.deepEqual(fields.find((field) => field.name === "policy")?.choices, ["all", "majority"]);
});

test("what is as by default is left out, and everything else has the type of its schema", () => {
  assert.deepEqual(objectOf(fields, { url: " http://127.0.0.1/ ", method: "GET" }), { url: "http://127.0.0.1/" });
  const texts = { url: "u", timeout_s: "2.5", verify: "false", expect: "[200]", command: "make load", path: "a\nb,c", policy: "majority" };
  assert.deepEqual(objectOf(fields, texts), {
    url: "u",
    timeout_s: 2.5,
    verify: false,
    expect: [200],
    command: "make load",
    path: ["a", "b", "c"],
    policy: "majority",
  });
});

test("text that is no value of its field is refused by name", () => {
  assert.throws(() => objectOf(fields, { url: "u", timeout_s: "soon" }), new NotAValue("timeout_s has to be a number, and is soon."));
  assert.throws(() => objectOf(fields, { url: "u", headers: "{a" }), NotAValue);
});
