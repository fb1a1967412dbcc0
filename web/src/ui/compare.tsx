/** Two versions of a body side by side: only what differs. */
import { useSignal } from "@preact/signals";
import { differences } from "../lib/diff";
import { Empty, Panel } from "./parts";

/** Compare versions of a record that the page has seen; the store keeps the newest only. */
export function Compare({ versions }: { versions: ReadonlyMap<number, unknown> }) {
  const numbers = [...versions.keys()].sort((a, b) => a - b);
  const picked = useSignal<readonly [number | undefined, number | undefined]>([undefined, undefined]);
  const [from, to] = [picked.value[0] ?? numbers.at(-2), picked.value[1] ?? numbers.at(-1)];
  if (from === undefined || to === undefined)
    return (
      <Panel title="What has changed">
        <p class="quiet">
          Nothing since this page was opened. The store keeps the newest body of a record; what this page sees while it is
          open can be compared here.
        </p>
      </Panel>
    );
  const { shown, more } = differences(versions.get(from), versions.get(to));
  return (
    <Panel title="What has changed">
      <p class="head">
        <Choice label="From version" numbers={numbers} value={from} choose={(one) => (picked.value = [one, picked.value[1]])} />
        <Choice label="to version" numbers={numbers} value={to} choose={(one) => (picked.value = [picked.value[0], one])} />
      </p>
      {shown.length === 0 ? (
        <Empty>The bodies of these versions are the same.</Empty>
      ) : (
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
              {shown.map((one) => (
                <tr key={one.path}>
                  <td class="mono">{one.path || "all of it"}</td>
                  <td class="mono before">{one.before}</td>
                  <td class="mono after">{one.after}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {more > 0 && <p class="quiet">{more.toLocaleString()} more differ.</p>}
    </Panel>
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
