/** The journal as it grows: what happened, to what, by whom and why. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { Entry } from "../api/client";
import { machines } from "../lib/machines";
import { query, setQuery } from "../lib/router";
import { clock } from "../lib/time";
import { useEntries } from "../live/live";
import { Empty, Head, State } from "../ui/parts";

const MOST = 300;

export function Journal() {
  const kind = query.value.get("kind") ?? "";
  const shown = useSignal<readonly Entry[]>([]);
  useEffect(() => {
    shown.value = [];
  }, [kind]);
  useEntries((entries) => {
    const wanted = entries.filter((entry) => !kind || entry.kind === kind);
    if (wanted.length) shown.value = [...[...wanted].reverse(), ...shown.value].slice(0, MOST);
  });
  return (
    <>
      <Head title="Journal">
        <label>
          Kind{" "}
          <select value={kind} onChange={(event) => setQuery("kind", event.currentTarget.value)}>
            <option value="">all</option>
            {[...machines.value.keys()].map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </label>
      </Head>
      <section class="panel scroll" aria-label="Entries of the journal">
        <table>
          <thead>
            <tr>
              <th>When</th>
              <th>Record</th>
              <th>What happened</th>
              <th>Who</th>
              <th>Why</th>
            </tr>
          </thead>
          <tbody>
            {shown.value.map((entry) => (
              <tr key={entry.cursor}>
                <td class="nowrap">
                  <time dateTime={entry.at}>{clock(entry.at)}</time>
                </td>
                <td class="nowrap">
                  {entry.kind}{" "}
                  {entry.kind === "job" ? (
                    <a class="mono" href={`/jobs/${encodeURIComponent(entry.id)}`}>
                      {entry.id}
                    </a>
                  ) : (
                    <span class="mono">{entry.id}</span>
                  )}
                </td>
                <td>
                  {entry.refusal
                    ? `refused: ${entry.refusal}`
                    : (entry.steps ?? []).map((step, place) => (
                        <span key={place} class="step">
                          {step.machine} {step.event} → <State machine={step.machine} state={step.to} />
                        </span>
                      ))}
                </td>
                <td>{entry.actor ?? ""}</td>
                <td class="quiet">{entry.reason ?? ""}</td>
              </tr>
            ))}
          </tbody>
        </table>
        {shown.value.length === 0 && <Empty>Nothing has happened since this page was opened.</Empty>}
      </section>
    </>
  );
}
