/** A button for one request of the API; it is not there for roles that cannot make it. */
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { accepts } from "../lib/machines";
import { may, type Request } from "../lib/session";
import { act } from "./toasts";

interface Props {
  /** The request that it makes; none where the server has offered the action, and so has looked itself. */
  readonly request?: Request;
  /** The machine, the state and the event that the request leads to: not shown where the table has nothing for it. */
  readonly legal?: readonly [machine: string, state: string, event: string];
  /** The message after success. */
  readonly done: string;
  readonly run: () => Promise<unknown>;
  readonly then?: () => void;
  /** A question to be answered before something that cannot be undone. */
  readonly ask?: string;
  readonly danger?: boolean;
  readonly children: ComponentChildren;
}

export function Action({ request, legal, done, run, then, ask, danger = false, children }: Props) {
  const busy = useSignal(false);
  if ((request && !may(request)) || (legal && !accepts(...legal))) return null;
  async function clicked(): Promise<void> {
    if (ask && !confirm(ask)) return;
    busy.value = true;
    await act(done, run);
    busy.value = false;
    then?.();
  }
  return (
    <button type="button" class={danger ? "danger" : ""} disabled={busy.value} onClick={clicked}>
      {children}
    </button>
  );
}
