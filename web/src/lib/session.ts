/** Who is looking, and what they may do: a button that would be refused is not shown. */
import { signal } from "@preact/signals";
import { ask, client } from "../api/client";
import { ROLES } from "../api/roles";

interface Session {
  readonly name: string;
  readonly roles: readonly string[];
  readonly queues?: readonly string[];
  readonly signed_in?: boolean;
}

export type Request = keyof typeof ROLES;

export const session = signal<Session | undefined>(undefined);

export async function loadSession(): Promise<void> {
  session.value = await ask(client.GET("/api/session"));
}

/** Return whether whoever is looking may make this request. */
export function may(request: Request): boolean {
  return session.value?.roles.includes(ROLES[request]) ?? false;
}

export async function signOut(): Promise<void> {
  await ask(client.POST("/api/session/end"));
  location.reload();
}
