// Write which role each request needs, from the API's own document, so that no role is spelled twice.
import { readFileSync, writeFileSync } from "node:fs";

const { paths } = JSON.parse(readFileSync("openapi.json", "utf8"));
const roles = {};
for (const [path, methods] of Object.entries(paths))
  for (const [method, operation] of Object.entries(methods))
    if (method !== "get" && operation["x-role"] && operation["x-role"] !== "runner")
      roles[`${method.toUpperCase()} ${path}`] = operation["x-role"];
writeFileSync("src/api/roles.ts", `export const ROLES = ${JSON.stringify(roles, null, 2)} as const;\n`);
