// Write who may make each request, from the API's own document, so that no role is spelled twice.
import { readFileSync, writeFileSync } from "node:fs";

const { paths } = JSON.parse(readFileSync("openapi.json", "utf8"));
const roles = {};
const everything = [];
for (const [path, methods] of Object.entries(paths))
  for (const [method, operation] of Object.entries(methods)) {
    const request = `${method.toUpperCase()} ${path}`;
    const role = operation["x-role"];
    if (method !== "get" && role && role !== "runner") roles[request] = role;
    if (operation["x-everything"]) everything.push(request);
  }
const lines = [
  `export const ROLES = ${JSON.stringify(roles, null, 2)} as const;`,
  "/** What is about all queues: refused to those who are confined to some. */",
  `export const EVERYTHING = ${JSON.stringify(everything, null, 2)} as const;`,
];
writeFileSync("src/api/roles.ts", `${lines.join("\n")}\n`);
