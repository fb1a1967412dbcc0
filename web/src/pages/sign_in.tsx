/** Ask for a token, once; the server keeps it in a cookie that no script can read. */
import { useSignal } from "@preact/signals";
import { ask, client, Problem, signedOut } from "../api/client";
import { loadMachines } from "../lib/machines";
import { loadSession } from "../lib/session";
import { retry } from "../live/live";
import { Refusal } from "../ui/parts";

export function SignIn() {
  const problem = useSignal<Problem | undefined>(undefined);
  const busy = useSignal(false);
  async function submit(event: SubmitEvent): Promise<void> {
    event.preventDefault();
    const token = String(new FormData(event.currentTarget as HTMLFormElement).get("token") ?? "").trim();
    busy.value = true;
    try {
      await ask(client.POST("/api/sessions", { body: { token } }));
      signedOut.value = false;
      retry();
      await Promise.all([loadSession(), loadMachines()]);
    } catch (error) {
      problem.value = error instanceof Problem ? error : new Problem("unexpected", String(error));
    } finally {
      busy.value = false;
    }
  }
  return (
    <main class="sign-in">
      <h1>Interlock</h1>
      <p>This server asks for a token.</p>
      <Refusal problem={problem.value} />
      <form onSubmit={submit}>
        <label for="token">Token</label>
        <input id="token" name="token" type="password" required autoComplete="current-password" placeholder="il_…" />
        <button type="submit" class="primary" disabled={busy.value}>
          Sign in
        </button>
      </form>
      <p class="quiet">
        Create one with <code>interlock token create NAME --role viewer</code>.
      </p>
    </main>
  );
}
