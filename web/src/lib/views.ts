/** Saved filters: a few for all users, and those of this user, kept in this browser. */
import { signal } from "@preact/signals";

const KEY = "views";

export interface View {
  readonly name: string;
  readonly q: string;
}

export const USUAL: readonly View[] = [
  { name: "All", q: "" },
  { name: "Running", q: "state:running" },
  { name: "Pending", q: "state:pending" },
  { name: "Failed in the last day", q: "state:failed since:1d" },
];

export const own = signal<readonly View[]>(read());

function read(): View[] {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    const views = Array.isArray(stored) ? stored : [];
    return views.filter((view): view is View => typeof view?.name === "string" && typeof view?.q === "string");
  } catch {
    return [];
  }
}

function keep(views: readonly View[]): void {
  own.value = views;
  localStorage.setItem(KEY, JSON.stringify(views));
}

export function save(name: string, q: string): void {
  keep([...own.value.filter((view) => view.name !== name), { name, q }]);
}

export function forget(name: string): void {
  keep(own.value.filter((view) => view.name !== name));
}
