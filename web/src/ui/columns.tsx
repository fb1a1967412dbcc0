/** Columns of a list to choose from; the choice is kept in this browser. */
import { type Signal, signal } from "@preact/signals";
import type { ComponentChildren } from "preact";

export interface Column<T> {
  readonly name: string;
  readonly title: string;
  /** Of its cells: how wide they are, and how they are aligned. */
  readonly class?: string;
  /** Whether it is shown before anything was chosen. */
  readonly usual?: boolean;
  readonly show: (row: T) => ComponentChildren;
  /** The tooltip of a cell. */
  readonly hint?: (row: T) => string;
}

/** A choice among columns. */
export interface Chosen<T> {
  readonly key: string;
  readonly all: readonly Column<T>[];
  readonly names: Signal<ReadonlySet<string>>;
}

/** Return the choice that this browser keeps under a key. */
export function chosen<T>(key: string, all: readonly Column<T>[]): Chosen<T> {
  return { key, all, names: signal(new Set(read(key) ?? usual(all))) };
}

/** Return the columns that are shown, in their order. */
export function columnsOf<T>({ all, names }: Chosen<T>): readonly Column<T>[] {
  return all.filter((column) => names.value.has(column.name));
}

/** Boxes to tick, one for each column. */
export function ChooseColumns<T>({ of }: { of: Chosen<T> }) {
  function toggle(name: string): void {
    const next = new Set(of.names.value);
    if (!next.delete(name)) next.add(name);
    keep(of, next);
  }
  return (
    <details class="menu">
      <summary class="button">Columns</summary>
      <fieldset class="panel">
        <legend class="hidden-text">Columns to show</legend>
        {of.all.map((column) => (
          <label key={column.name}>
            <input type="checkbox" checked={of.names.value.has(column.name)} onChange={() => toggle(column.name)} /> {column.title}
          </label>
        ))}
        <button type="button" class="plain" onClick={() => keep(of, new Set(usual(of.all)))}>
          As usual
        </button>
      </fieldset>
    </details>
  );
}

function usual<T>(all: readonly Column<T>[]): string[] {
  return all.filter((column) => column.usual).map((column) => column.name);
}

function keep<T>(of: Chosen<T>, names: ReadonlySet<string>): void {
  of.names.value = names;
  const same = usual(of.all).length === names.size && usual(of.all).every((name) => names.has(name));
  if (same) localStorage.removeItem(of.key);
  else localStorage.setItem(of.key, JSON.stringify([...names]));
}

function read(key: string): string[] | undefined {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(key) ?? "null");
    return Array.isArray(stored) ? stored.filter((name) => typeof name === "string") : undefined;
  } catch {
    return undefined;
  }
}
