/** Attempts to scale: how long each waited and worked, one line each. */
import type { Attempt } from "../api/client";
import { meaningOf } from "../lib/machines";
import { now, span } from "../lib/time";
import { Panel } from "./parts";

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
          const said = `${one.shard}.${one.index}: waited ${span(waited)}${started ? `, then ${one.state} after ${span(ended - started)}` : `, ${one.state}`}`;
          return (
            <li key={one.id} aria-label={said} title={said}>
              <span class="mono name">
                {one.shard}.{one.index}
              </span>
              <span class="track">
                <span class="bar wait" style={{ left: share(made), width: width(made, started ?? ended) }} />
                {started !== undefined && (
                  <span
                    class={`bar ${meaningOf("attempt", one.state)}`}
                    style={{ left: share(started), width: width(started, ended) }}
                  />
                )}
              </span>
            </li>
          );
        })}
      </ul>
      <p class="quiet">{span(end - begin)} from submission; hatched is waiting.</p>
    </Panel>
  );
}
