/** The lifecycles, as the server declares them: names of states, what they mean, and pictures. */
import { signal } from "@preact/signals";
import { ask, client } from "../api/client";

export type Meaning = "waiting" | "active" | "good" | "bad" | "stopped";

export interface Machine {
  readonly name: string;
  readonly doc: string;
  readonly states: readonly string[];
  readonly terminal: readonly string[];
  readonly meanings: Readonly<Record<string, Meaning>>;
}

export const machines = signal<ReadonlyMap<string, Machine>>(new Map());

/** Read the tables once; they change only with the server. */
export async function loadMachines(): Promise<void> {
  const answer = await ask(client.GET("/api/machines"));
  machines.value = new Map(answer.machines.map((machine) => [machine.name, machine as Machine]));
}

/** Return what a state means for its colour; nothing in particular while the tables are not there yet. */
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
