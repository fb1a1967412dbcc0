/** Attempts to scale: how long each backed off, waited and worked, and its lease, one line each. */
import type { Attempt } from "../api/client";
import { meaningOf } from "../lib/machines";
import { now, span } from "../lib/time";
import { Panel } from "./parts";

/** A shorter pause is no backoff. */
const SHORT_MS = 10;

export function Timeline({ created, attempts }: { created: string; attempts: readonly Attempt[] }) {
  if (!attempts.length) return null;
  const begin = Date.parse(created);
  const ends = attempts.map((one) => (one.ended_at ? Date.parse(one.ended_at) : now.value));
  const end = Math.max(begin + 1, ...ends);
  const share = (at: number) => `${((100 * (Math.max(begin, at) - begin)) / (end - begin)).toFixed(3)}%`;
  const width = (from: number, to: number) => `${((100 * Math.max(0, to - from)) / (end - begin)).toFixed(3)}%`;
  return (
    <Panel title="Timeline">
      <ul class="timeline">
        {attempts.map((one) => {
          const made = Date.parse(one.created_at);
          const started = one.started_at ? Date.parse(one.started_at) : undefined;
          const ended = one.ended_at ? Date.parse(one.ended_at) : now.value;
          const waited = (started ?? ended) - made;
          const ready = Math.min(Math.max(made, one.ready_at ? Date.parse(one.ready_at) : made), started ?? ended);
          const leased = one.lease && Math.min(Date.parse(one.lease.expires_at), ended);
          const said = [
            `${one.shard}.${one.index}:`,
            ready - made >= SHORT_MS ? `backed off ${span(ready - made)},` : "",
            `waited ${span(waited - (ready - made))},`,
            started ? `then ${one.state} after ${span(ended - started)}` : one.state,
            one.lease ? `; lease of ${one.lease.runner_id} ${one.lease.state}` : "",
          ].join(" ");
          return (
            <li key={one.id} aria-label={said} title={said}>
              <span class="mono name">
                {one.shard}.{one.index}
              </span>
              <span class="track">
                <span class="bar backoff" style={{ left: share(made), width: width(made, ready) }} />
                <span class="bar wait" style={{ left: share(ready), width: width(ready, started ?? ended) }} />
                {started !== undefined && (
                  <span
                    class={`bar ${meaningOf("attempt", one.state)}`}
                    style={{ left: share(started), width: width(started, ended) }}
                  />
                )}
                {one.lease && leased && (
                  <span
                    class={`bar lease ${meaningOf("lease", one.lease.state)}`}
                    style={{ left: share(Date.parse(one.lease.granted_at)), width: width(Date.parse(one.lease.granted_at), leased) }}
                  />
                )}
              </span>
            </li>
          );
        })}
      </ul>
      <p class="quiet">{span(end - begin)} from submission. Hatched is waiting, dotted is the pause before a retry; the thin line is the lease.</p>
    </Panel>
  );
}
