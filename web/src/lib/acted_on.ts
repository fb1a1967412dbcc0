/** Bulk actions on jobs and dead letters: how their pages are read, and which action concerns which. */
import { ask, client, type components, type Job } from "../api/client";
import { hasEnded } from "./machines";

export type Verb = "cancel" | "retry" | "discard";

/** One of those that an action is about. */
export type Item = Pick<Job, "id" | "state" | "task" | "queue"> & { readonly started_at?: string | null };

interface Found {
  readonly items: readonly Item[];
  readonly cursor: string;
  /** How many match, where that is counted. */
  readonly count?: { readonly number: number; readonly capped?: boolean } | null;
}

interface Order {
  readonly filter: string;
  readonly limit: number;
  readonly dry_run?: boolean;
  readonly request_id?: string;
}

export interface Noun {
  readonly one: string;
  readonly many: string;
  readonly verbs: readonly Verb[];
  /** Return whether an action makes sense for a record: ended ones are not canceled, others are not retried. */
  readonly concerns: (verb: Verb, item: Item) => boolean;
  readonly list: (q: string, limit: number, cursor: string) => Promise<Found>;
  readonly act: (verb: Verb, order: Order) => Promise<components["schemas"]["ActionAnswer"]>;
}

export const JOBS: Noun = {
  one: "job",
  many: "jobs",
  verbs: ["cancel", "retry"],
  concerns: (verb, item) => hasEnded("job", item.state) === (verb === "retry"),
  list: async (q, limit, cursor) => {
    const page = await ask(client.GET("/api/jobs", { params: { query: { q, limit, cursor } } }));
    return { items: page.jobs, cursor: page.cursor, count: page.count ?? null };
  },
  act: (verb, order) => ask(client.POST("/api/jobs/actions", { body: { ...order, action: verb as "cancel" | "retry" } })),
};

export const LETTERS: Noun = {
  one: "dead letter",
  many: "dead letters",
  verbs: ["retry", "discard"],
  concerns: () => true, // those that were dealt with are not listed
  list: async (q, limit, cursor) => {
    const page = await ask(client.GET("/api/dead-letters", { params: { query: { q, limit, cursor } } }));
    return { items: page.letters.map((letter) => letter.job), cursor: page.cursor };
  },
  act: (verb, order) => ask(client.POST("/api/dead-letters/actions", { body: { ...order, action: verb as "retry" | "discard" } })),
};
