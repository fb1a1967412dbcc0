/** The outcome of an action, for a few seconds, read aloud by screen readers. */
import { signal } from "@preact/signals";
import { Problem } from "../api/client";
import { Words } from "./parts";

interface Toast {
  readonly id: number;
  readonly text: string;
  readonly bad: boolean;
}

const shown = signal<readonly Toast[]>([]);
const LASTS_MS = 8_000;
let next = 0;

export function tell(text: string, bad = false): void {
  const toast = { id: next++, text, bad };
  shown.value = [...shown.value.slice(-3), toast];
  setTimeout(() => {
    shown.value = shown.value.filter((each) => each !== toast);
  }, LASTS_MS);
}

/** Do something and tell how it went; the refusal is the server's own sentence. */
export async function act(done: string, work: () => Promise<unknown>): Promise<boolean> {
  try {
    await work();
    if (done) tell(done);
    return true;
  } catch (error) {
    const problem = error instanceof Problem ? error : new Problem("unexpected", String(error));
    tell([problem.message, problem.todo].filter(Boolean).join(" "), true);
    return false;
  }
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {shown.value.map((toast) => (
        <div key={toast.id} class={`notice ${toast.bad ? "bad" : ""}`}>
          <Words text={toast.text} />
        </div>
      ))}
    </div>
  );
}
