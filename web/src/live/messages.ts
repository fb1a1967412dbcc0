/** The messages between the pages of one browser and the worker that they share. */
import type { Entry } from "../api/client";

export type ToWorker = { type: "visible" } | { type: "hidden" } | { type: "retry" } | { type: "bye" };

export type FromWorker =
  | { type: "entries"; entries: Entry[]; gap: boolean }
  /** Whether news arrives by the stream; otherwise pages look for themselves. `refusal`: why there is none for good. */
  | { type: "state"; streaming: boolean; refusal: string };
