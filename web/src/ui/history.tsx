/** The story of one record, step by step: when, what, who and why. */
import type { Entry } from "../api/client";
import { clock, exact } from "../lib/time";
import { Panel, State } from "./parts";

export function History({ entries, older = false }: { entries: readonly Entry[]; older?: boolean }) {
  return (
    <Panel title="History">
      <div class="scroll">
        <table class="story">
          <thead>
            <tr>
              <th>When</th>
              <th>What</th>
              <th>Event</th>
              <th>From</th>
              <th>To</th>
              <th>Who</th>
              <th>Why</th>
            </tr>
          </thead>
          <tbody>{entries.flatMap(rowsOf)}</tbody>
        </table>
      </div>
      {older && <p class="quiet">These are the last {entries.length} entries; the journal has older ones.</p>}
    </Panel>
  );
}

function rowsOf(entry: Entry) {
  const when = (
    <td class="nowrap">
      <time dateTime={entry.at} title={exact(entry.at)}>
        {clock(entry.at)}
      </time>
    </td>
  );
  if (entry.refusal) {
    return [
      <tr key={`${entry.version} ${entry.at} refused`}>
        {when}
        <td colSpan={4}>refused: {entry.refusal}</td>
        <td>{entry.actor ?? ""}</td>
        <td class="quiet">{entry.reason ?? ""}</td>
      </tr>,
    ];
  }
  if (!entry.steps?.length) {
    return [
      <tr key={`${entry.version} ${entry.at}`}>
        {when}
        <td colSpan={4}>{entry.version === 1 ? "created" : "changed"}</td>
        <td>{entry.actor ?? ""}</td>
        <td class="quiet">{entry.reason ?? ""}</td>
      </tr>,
    ];
  }
  return entry.steps.map((step, place) => (
    <tr key={`${entry.version}.${place}`}>
      {when}
      <td class="nowrap">
        {step.machine} {step.entity ?? ""}
      </td>
      <td class="mono">{step.event}</td>
      <td>{step.from && <State machine={step.machine} state={step.from} />}</td>
      <td>
        <State machine={step.machine} state={step.to} />
      </td>
      <td>{entry.actor ?? ""}</td>
      <td class="quiet">{entry.reason ?? ""}</td>
    </tr>
  ));
}

/** Return the states that a record has passed, as its journal tells. */
export function pathOf(entries: readonly Entry[], machine: string): string[] {
  const steps = entries
    .flatMap((entry) => entry.steps ?? [])
    .filter((step) => step.machine === machine && !step.entity && step.moves !== false);
  const first = steps[0];
  return first ? [first.from, ...steps.map((step) => step.to)].filter(Boolean) : [];
}
