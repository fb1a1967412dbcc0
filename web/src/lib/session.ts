/** The user and their role: a button that would be refused is not shown. */
import { signal } from "@preact/signals";
import { ask, client } from "../api/client";
import { EVERYTHING, ROLES } from "../api/roles";

interface Session {
  readonly name: string;
  readonly roles: readonly string[];
  readonly queues?: readonly string[];
  readonly signed_in?: boolean;
}

export type Request = keyof typeof ROLES;
export type Everything = (typeof EVERYTHING)[number];

const all: ReadonlySet<string> = new Set(EVERYTHING);

export const session = signal<Session | undefined>(undefined);

export async function loadSession(): Promise<void> {
  session.value = await ask(client.GET("/api/session"));
}

let checking = false;

/** Ask again for the user, one request at a time; the client notes a refusal, and a server that is gone. */
export function checkSession(): void {
  if (checking) return;
  checking = true;
  loadSession()
    .catch(() => {})
    .finally(() => {
      checking = false;
    });
}

/** Return whether the signed-in user may make this request. */
export function may(request: Request): boolean {
  return (session.value?.roles.includes(ROLES[request]) ?? false) && sees(request);
}

/** Return whether a request is answered as far as queues go: not if it is about all, and the token about some. */
export function sees(request: Request | Everything): boolean {
  return session.value !== undefined && (!session.value.queues?.length || !all.has(request));
}

export async function signOut(): Promise<void> {
  await ask(client.POST("/api/session/end"));
  location.reload();
}
