/** Two versions of a record side by side: its states and what happened as the journal tells, and the bodies that are known. */
import { useSignal } from "@preact/signals";
import type { Entry } from "../api/client";
import { differences } from "../lib/diff";
import { between, standingAt, versionsOf } from "../lib/versions";
import { Empty, Panel } from "./parts";

interface Props {
  readonly kind: string;
  /** The newest version. */
  readonly version: number;
  readonly entries: readonly Entry[];
  /** The bodies that this page has seen, by version: the store keeps the newest only. */
  readonly bodies: ReadonlyMap<number, unknown>;
}

export function Compare({ kind, version, entries, bodies }: Props) {
  const numbers = versionsOf(entries, bodies.keys(), version);
  const picked = useSignal<readonly [number | undefined, number | undefined]>([undefined, undefined]);
  const [from, to] = [picked.value[0] ?? numbers.at(-2), picked.value[1] ?? numbers.at(-1)];
  if (from === undefined || to === undefined)
    return (
      <Panel title="Changes">
        <Empty>There is one version only.</Empty>
      </Panel>
    );
  const states = differences(standingAt(kind, entries, from), standingAt(kind, entries, to)).shown;
  const known = bodies.has(from) && bodies.has(to);
  const { shown, more } = known ? differences(bodies.get(from), bodies.get(to)) : { shown: [], more: 0 };
  const rows = [
    ...states.map((one) => ({ ...one, before: stateOf(one.before), after: stateOf(one.after), of: "state" })),
    ...shown.map((one) => ({ ...one, of: "body" })),
  ];
  const steps = between(entries, from, to);
  return (
    <Panel title="Changes">
      <p class="head">
        <Choice label="From version" numbers={numbers} value={from} choose={(one) => (picked.value = [one, picked.value[1]])} />
        <Choice label="to version" numbers={numbers} value={to} choose={(one) => (picked.value = [picked.value[0], one])} />
      </p>
      {rows.length > 0 && (
        <div class="scroll">
          <table class="differences">
            <thead>
              <tr>
                <th>Where</th>
                <th>Version {from}</th>
                <th>Version {to}</th>
              </tr>
            </thead>
            <tbody>
              {rows.map((one) => (
                <tr key={`${one.of} ${one.path}`}>
                  <td class={one.of === "body" ? "mono" : ""}>{one.path || "all of it"}</td>
                  <td class="mono before">{one.before}</td>
                  <td class="mono after">{one.after}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {more > 0 && <p class="quiet">{more.toLocaleString()} more differ.</p>}
      {known && !shown.length && <p>The body is the same in both.</p>}
      {steps.length > 0 && <Between entries={steps} />}
      {!known && <NotKept bodies={bodies} wanted={[from, to]} />}
    </Panel>
  );
}

/** Of differences, which are JSON, the text of a state. */
function stateOf(text: string): string {
  return text ? String(JSON.parse(text)) : "";
}

/** The steps between the two versions, each with actor and reason. */
function Between({ entries }: { entries: readonly Entry[] }) {
  return (
    <details>
      <summary>{entries.length === 1 ? "The change in between" : `The ${entries.length} changes in between`}</summary>
      <ul class="tree">
        {entries.map((entry) => (
          <li key={entry.version}>
            Version {entry.version}: <code>{entry.steps?.map((step) => step.event).join(", ") || "no step"}</code>{" "}
            <span class="quiet">
              {entry.actor && `by ${entry.actor}`}
              {entry.reason && `: ${entry.reason}`}
            </span>
          </li>
        ))}
      </ul>
    </details>
  );
}

/** Say plainly which bodies cannot be shown. */
function NotKept({ bodies, wanted }: { bodies: ReadonlyMap<number, unknown>; wanted: readonly number[] }) {
  if (!bodies.size) return <p class="quiet">States are compared. Bodies are shown to admins only.</p>;
  const missing = wanted.filter((each) => !bodies.has(each));
  return (
    <p class="quiet">
      The {missing.length > 1 ? `bodies of versions ${missing.join(" and ")} are` : `body of version ${missing[0]} is`} not kept: the store keeps
      the newest body of a record, and of older versions the steps, their actor and reason. Bodies that this page has seen since it was
      opened can be compared: {[...bodies.keys()].length > 1 ? `versions ${[...bodies.keys()].join(", ")}` : `version ${[...bodies.keys()][0]}`}.
    </p>
  );
}

interface ChoiceProps {
  readonly label: string;
  readonly numbers: readonly number[];
  readonly value: number;
  readonly choose: (version: number) => void;
}

function Choice({ label, numbers, value, choose }: ChoiceProps) {
  return (
    <label>
      {label}{" "}
      <select value={value} onChange={(event) => choose(Number(event.currentTarget.value))}>
        {numbers.map((number) => (
          <option key={number} value={number}>
            {number}
          </option>
        ))}
      </select>
    </label>
  );
}
