/** A dialog that declares a limit, or changes one. */
import { useSignal } from "@preact/signals";
import { useId, useLayoutEffect, useRef } from "preact/hooks";
import { ask, client, type components, Problem, requestId } from "../api/client";
import { may } from "../lib/session";
import { Labelled } from "./form";
import { Refusal } from "./parts";
import { tell } from "./toasts";
import "../styles/preview.css";

type Limit = components["schemas"]["LimitView"];

const FIELDS = [
  ["max", "Slots", "Jobs that run at the same time."],
  ["rate", "Rate", "Jobs that start in each period."],
  ["period_s", "Period in seconds", "Length of the period of the rate; 1 by default."],
  ["burst", "Burst", "Jobs that may start at once after a pause; by default the rate."],
] as const;

type Texts = Record<"name" | "description" | (typeof FIELDS)[number][0], string>;

const textOf = (value: number | null | undefined) => (value == null ? "" : String(value));
const numberOf = (text: string) => (text.trim() === "" ? undefined : Number(text));

interface Props {
  /** The limit to change; none declares a new one. */
  readonly one?: Limit;
  readonly look: () => void;
}

export function SetLimit({ one, look }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const texts = useSignal<Texts | undefined>(undefined);
  const problem = useSignal<Problem | undefined>(undefined);
  const busy = useSignal(false);
  const id = useId();
  const shown = texts.value !== undefined;
  // When its fields are there: the first of them has the focus.
  useLayoutEffect(() => {
    if (shown) dialog.current?.showModal();
  }, [shown]);
  if (!may("POST /api/limits")) return null;
  const given = texts.value;

  function open(): void {
    const { spec } = one ?? { spec: {} as Limit["spec"] };
    problem.value = undefined;
    texts.value = {
      name: one?.name ?? "",
      max: textOf(spec.max),
      rate: textOf(spec.rate),
      period_s: spec.rate == null ? "" : textOf(spec.period_s),
      burst: textOf(spec.burst),
      description: spec.description ?? "",
    };
  }

  function set(name: keyof Texts, text: string): void {
    if (given) texts.value = { ...given, [name]: text };
  }

  async function send(): Promise<void> {
    if (!given) return;
    busy.value = true;
    const numbers = FIELDS.map(([name]) => [name, numberOf(given[name])] as const).filter(([, value]) => value !== undefined);
    const spec = { ...Object.fromEntries(numbers), ...(given.description && { description: given.description }) };
    try {
      await ask(client.POST("/api/limits", { body: { limit: given.name.trim(), spec, request_id: requestId() } }));
      dialog.current?.close();
      tell(`${given.name.trim()} is set; running jobs continue.`);
      look();
    } catch (error) {
      problem.value = error instanceof Problem ? error : new Problem("unexpected", String(error));
    }
    busy.value = false;
  }

  return (
    <>
      <button type="button" onClick={open}>
        {one ? "Change …" : "Set a limit …"}
      </button>
      <dialog
        ref={dialog}
        class="preview"
        aria-labelledby={id}
        onClose={() => {
          texts.value = undefined;
        }}
      >
        {given && (
          <form
            onSubmit={(event) => {
              event.preventDefault();
              void send();
            }}
          >
            <h2 id={id}>{one ? `Change ${one.name}` : "Set a limit"}</h2>
            <div class="form">
              {!one && (
                <Labelled name="Name" about="A key such as vendor-x, a pattern such as tenant:*, queue:NAME or task:NAME." required>
                  {(field) => (
                    <input id={field} class="mono" required maxLength={64} value={given.name} onInput={(event) => set("name", event.currentTarget.value)} />
                  )}
                </Labelled>
              )}
              {FIELDS.map(([name, title, about]) => (
                <Labelled key={name} name={title} about={about}>
                  {(field) => (
                    <input
                      id={field}
                      type="number"
                      min={name === "period_s" ? "0.001" : "1"}
                      step={name === "period_s" ? "any" : "1"}
                      value={given[name]}
                      onInput={(event) => set(name, event.currentTarget.value)}
                    />
                  )}
                </Labelled>
              ))}
              <Labelled name="Description">
                {(field) => <input id={field} value={given.description} onInput={(event) => set("description", event.currentTarget.value)} />}
              </Labelled>
            </div>
            {one && one.source !== "api" && <p class="quiet">It was declared in {one.source}. A limit set here stays until it is deleted.</p>}
            <Refusal problem={problem.value} always />
            <div class="acts">
              <button type="submit" class="primary" disabled={busy.value}>
                {one ? "Change" : "Set"}
              </button>
              <button type="button" onClick={() => dialog.current?.close()}>
                Close
              </button>
            </div>
          </form>
        )}
      </dialog>
    </>
  );
}
