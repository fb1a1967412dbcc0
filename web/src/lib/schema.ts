/** Forms from JSON Schema: which fields an object has, and the value that the text in a field stands for. */

export type Schema = Readonly<Record<string, unknown>>;

export interface Field {
  readonly name: string;
  /** `lines` is a list with one entry in each line; `json` is anything that has no simpler field. */
  readonly kind: "text" | "number" | "flag" | "choice" | "lines" | "json";
  readonly required: boolean;
  readonly initial: string;
  readonly about: string;
  readonly choices: readonly string[];
}

/** Return the fields of an object, those that are required first. */
export function fieldsOf(whole: Schema, leaveOut: readonly string[] = []): Field[] {
  const schema = followed(whole, whole);
  const properties = (schema["properties"] ?? {}) as Record<string, Schema>;
  const required = new Set((schema["required"] ?? []) as string[]);
  return Object.entries(properties)
    .filter(([name]) => !leaveOut.includes(name))
    .map(([name, property]) => fieldOf(name, property, whole, required.has(name)))
    .sort((one, other) => Number(other.required) - Number(one.required));
}

function fieldOf(name: string, property: Schema, whole: Schema, required: boolean): Field {
  const schema = followed(property, whole);
  const choices = ((schema["enum"] ?? []) as unknown[]).map(String);
  const kind = choices.length ? "choice" : kindOf(schema);
  return { name, kind, required, choices, initial: textOf(kind, property["default"]), about: String(property["description"] ?? "") };
}

function kindOf(schema: Schema): Field["kind"] {
  const either = schema["anyOf"] as Schema[] | undefined;
  if (either) {
    const left = either.filter((each) => each["type"] !== "null");
    const only = left[0];
    return left.length === 1 && only ? kindOf(only) : "json";
  }
  switch (schema["type"]) {
    case "string":
      return "text";
    case "number":
    case "integer":
      return "number";
    case "boolean":
      return "flag";
    case "array":
      return ["string"].includes(String((schema["items"] as Schema | undefined)?.["type"])) ? "lines" : "json";
    default:
      return "json";
  }
}

function followed(schema: Schema, whole: Schema): Schema {
  const reference = schema["$ref"];
  if (typeof reference !== "string") return schema;
  const named = (whole["$defs"] as Record<string, Schema> | undefined)?.[reference.split("/").at(-1) ?? ""];
  return named ?? {};
}

/** Return a value as the text of a field; nothing where there is no value. */
export function textOf(kind: Field["kind"], value: unknown): string {
  if (value === undefined || value === null) return "";
  if (kind === "json") return isEmpty(value) ? "" : JSON.stringify(value);
  if (kind === "lines") return (value as unknown[]).join("\n");
  return String(value);
}

function isEmpty(value: unknown): boolean {
  return typeof value === "object" && value !== null && Object.keys(value).length === 0;
}

export class NotAValue extends Error {}

/** Return what a field stands for; undefined for one that is left as it is by default. Throws what is wrong. */
export function valueOf(field: Field, text: string): unknown {
  const said = text.trim();
  if (said === field.initial && !field.required) return undefined;
  switch (field.kind) {
    case "flag":
      return said === "true";
    case "number":
      if (!said) return undefined;
      if (!Number.isFinite(Number(said))) throw new NotAValue(`${field.name} has to be a number, and is ${said}.`);
      return Number(said);
    case "lines":
      return said
        .split(/[\n,]/)
        .map((line) => line.trim())
        .filter(Boolean);
    case "json":
      return said ? jsonOf(field.name, said) : undefined;
    default:
      return said;
  }
}

/** Text that begins like JSON has to be JSON; other text stands for itself. */
function jsonOf(name: string, said: string): unknown {
  try {
    return JSON.parse(said);
  } catch {
    if (/^[[{"]/.test(said)) throw new NotAValue(`${name} is no JSON: ${said.slice(0, 60)}`);
    return said;
  }
}

/** Return the object that all fields stand for together. */
export function objectOf(fields: readonly Field[], texts: Readonly<Record<string, string>>): Record<string, unknown> {
  const made: Record<string, unknown> = {};
  for (const field of fields) {
    const value = valueOf(field, texts[field.name] ?? field.initial);
    if (value !== undefined) made[field.name] = value;
  }
  return made;
}
