/** A button that shows what would happen before it happens, in a dialog that can be closed again. */
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useId, useRef } from "preact/hooks";
import { accepts } from "../lib/machines";
import { may, type Request } from "../lib/session";
import { act } from "./toasts";
import "../styles/preview.css";

interface Props<T> {
  readonly request: Request;
  /** The machine, the state and the event that the request leads to: not shown where the table has nothing for it. */
  readonly legal?: readonly [machine: string, state: string, event: string];
  readonly title: string;
  /** Read the preview; a refusal is shown, and nothing opens. */
  readonly prepare: () => Promise<T>;
  readonly show: (found: T) => ComponentChildren;
  /** The text of the button that does it. */
  readonly confirm: (found: T) => string;
  /** The message after success. */
  readonly done: string;
  readonly run: () => Promise<unknown>;
  readonly then?: () => void;
  readonly danger?: boolean;
  readonly children: ComponentChildren;
}

export function Previewed<T>(props: Props<T>) {
  const { request, legal, title, prepare, show, confirm, done, run, then, danger = false, children } = props;
  const dialog = useRef<HTMLDialogElement>(null);
  const found = useSignal<{ readonly it: T } | undefined>(undefined);
  const busy = useSignal(false);
  const id = useId();
  if (!may(request) || (legal && !accepts(...legal))) return null;

  async function open(): Promise<void> {
    busy.value = true;
    await act("", async () => {
      found.value = { it: await prepare() };
    });
    busy.value = false;
    if (found.value) dialog.current?.showModal();
  }

  async function go(): Promise<void> {
    busy.value = true;
    const good = await act(done, run);
    busy.value = false;
    if (!good) return;
    dialog.current?.close();
    then?.();
  }

  return (
    <>
      <button type="button" class={danger ? "danger" : ""} disabled={busy.value} onClick={open}>
        {children}
      </button>
      <dialog
        ref={dialog}
        class="preview"
        aria-labelledby={id}
        onClose={() => {
          found.value = undefined;
        }}
      >
        {found.value && (
          <>
            <h2 id={id}>{title}</h2>
            {show(found.value.it)}
            <div class="acts">
              <button type="button" class={danger ? "danger" : "primary"} disabled={busy.value} onClick={go}>
                {confirm(found.value.it)}
              </button>
              <button type="button" onClick={() => dialog.current?.close()}>
                Close
              </button>
            </div>
          </>
        )}
      </dialog>
    </>
  );
}
