/** JSON whose numbers stay as they are written: a browser would round 12345678901234567890, and make 1 of 1.0. */

interface WithSource {
  readonly source?: string;
}

type Revive = (key: string, value: unknown, context?: WithSource) => unknown;
const parse = JSON.parse as (text: string, revive: Revive) => unknown;
const raw = (JSON as unknown as { rawJSON?: (text: string) => unknown }).rawJSON;

/** A number that this browser cannot keep as it is written. */
export class Rounded extends Error {}

/** Return a value from which `JSON.stringify` writes the same numbers again; throw where the browser cannot do that. */
export function exactly(text: string): unknown {
  return parse(text, (_, value, context) => {
    if (typeof value !== "number") return value;
    const source = context?.source ?? String(value);
    if (source === String(value)) return unsafe(value) && !context?.source ? refuse(value) : value;
    return raw ? raw(source) : refuse(value);
  });
}

const unsafe = (value: number) => !Number.isFinite(value) || Math.abs(value) > Number.MAX_SAFE_INTEGER;

function refuse(value: number): never {
  throw new Rounded(`This browser would change a number near ${value}. Use the command line for this one.`);
}
