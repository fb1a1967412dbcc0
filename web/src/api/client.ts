/** The API, typed by the server's own OpenAPI document, and its refusals as errors with the server's words. */
import { signal } from "@preact/signals";
import createClient from "openapi-fetch";
import type { components, paths } from "./schema";

export type { components };
type Schemas = components["schemas"];
export type Job = Schemas["JobView"];
export type Attempt = Schemas["AttemptView"];
export type Entry = Schemas["EntryView"];
export type Blueprint = Schemas["Blueprint"];
export type ProblemBody = Schemas["Problem"];

/** Whether the server wants a token before it shows anything. */
export const signedOut = signal(false);
/** When the server could not be reached last; 0 while it answers. */
export const unreachableSince = signal(0);

/** A refusal of the server, or silence: the error, and the next step for the user. */
export class Problem extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly todo = "",
    readonly status = 0,
    readonly allowed: readonly string[] = [],
  ) {
    super(message);
  }
}

export const client = createClient<paths>({ baseUrl: location.origin, credentials: "same-origin", fetch: watched });

async function watched(request: Request): Promise<Response> {
  try {
    const response = await fetch(request);
    unreachableSince.value = 0;
    if (response.status === 401) signedOut.value = true;
    return response;
  } catch (error) {
    if (request.signal.aborted) throw error;
    unreachableSince.value ||= Date.now();
    throw new Problem("unreachable", "The server cannot be reached.", "The page retries every few seconds.");
  }
}

type Answered<T> = { data?: T; error?: unknown; response: Response };

/** Return the answer of the server; throw its refusal. */
export async function ask<T>(answer: Promise<Answered<T>>): Promise<T> {
  const { data, error, response } = await answer;
  if (response.ok) return data as T;
  throw problemOf(error, response.status);
}

function problemOf(error: unknown, status: number): Problem {
  const said = (typeof error === "object" && error !== null ? error : {}) as Partial<ProblemBody>;
  return new Problem(
    said.code ?? "unexpected",
    said.error ?? `The server answered ${status} without saying why.`,
    said.todo ?? "",
    status,
    said.allowed ?? [],
  );
}

/** Make a request that the server itself has offered, under an id of its own. */
export async function post(path: string): Promise<unknown> {
  // The paths of the document are known when this is compiled; that of an offer only when it is made.
  const offered = client.POST as unknown as (to: string, init: { body: object }) => Promise<Answered<unknown>>;
  return ask(offered(path, { body: { request_id: requestId() } }));
}

/** A new id under which a request is done once, however often it is sent. */
export function requestId(): string {
  return crypto.randomUUID();
}
