/** The lifecycles, as the server declares them: states with their meanings, and pictures. */
import { signal } from "@preact/signals";
import { ask, client, type components } from "../api/client";
import { holdPage } from "./loading";

export type Meaning = "waiting" | "active" | "good" | "bad" | "stopped";

export interface Machine {
  readonly name: string;
  readonly doc: string;
  readonly states: readonly string[];
  readonly terminal: readonly string[];
  readonly meanings: Readonly<Record<string, Meaning>>;
  /** Whether the store keeps records of it; others live inside of a record. */
  readonly recorded?: boolean;
}

export const machines = signal<ReadonlyMap<string, Machine>>(new Map());

/** Read the tables once; they change only with the server. */
export async function loadMachines(): Promise<void> {
  const answer = await ask(client.GET("/api/machines"));
  machines.value = new Map(answer.machines.map((machine) => [machine.name, machine as Machine]));
}

/** Return the meaning of a state for its colour; none in particular until the tables are there. */
export function meaningOf(machine: string, state: string): Meaning | "" {
  return machines.value.get(machine)?.meanings[state] ?? "";
}

/** Return whether a record in this state has ended. */
export function hasEnded(machine: string, state: string): boolean {
  return machines.value.get(machine)?.terminal.includes(state) ?? false;
}

/** Return the address of a machine's picture with a state lit and the path that led there. */
export function pictureOf(machine: string, state: string, passed: readonly string[]): string {
  const query = new URLSearchParams();
  if (state) query.set("state", state);
  if (passed.length) query.set("path", passed.join(","));
  const said = query.toString();
  return `/api/machines/${encodeURIComponent(machine)}.svg${said ? `?${said}` : ""}`;
}

type Table = components["schemas"]["Blueprint"];

const tables = signal<ReadonlyMap<string, Table>>(new Map());
const asked = new Set<string>();

/** Return the table of a machine; undefined until it has been read, which this begins. */
export function tableOf(machine: string): Table | undefined {
  const found = tables.value.get(machine);
  if (!found && !asked.has(machine)) {
    asked.add(machine);
    void Promise.resolve().then(holdPage).then((release) => readTable(machine).finally(release));
  }
  return found;
}

async function readTable(machine: string): Promise<void> {
  try {
    const table = await ask(client.GET("/api/machines/{name}", { params: { path: { name: machine } } }));
    tables.value = new Map([...tables.value, [machine, table]]);
  } catch {
    asked.delete(machine); // it is asked for again with the next look
  }
}

/** Return whether an event leads somewhere from a state, or is accepted there: whether asking for it makes sense. */
export function accepts(machine: string, state: string, event: string): boolean {
  const table = tableOf(machine);
  if (!table) return false;
  return (
    table.transitions.some((row) => row.from === state && row.event === event) ||
    (table.kept ?? []).some((row) => row.state === state && row.event === event)
  );
}
