/** The log of a job: live, with search, levels, wrapping, and a jump to the first error. */
import { type ReadonlySignal, useComputed, useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { ask, client, type components } from "../api/client";
import { holdPage } from "../lib/loading";
import { clock } from "../lib/time";
import { onceKnown, useNews } from "../live/live";
import { ansi } from "./ansi";
import { Empty, Panel } from "./parts";

export type Line = components["schemas"]["LogLineView"];

const LOUD = new Set(["error", "critical", "failed", "gap"]);
const WARNING = new Set([...LOUD, "warning", "stderr"]);
/** By name: whether a line of this level is shown. */
const LEVELS: readonly (readonly [string, (level: string) => boolean])[] = [
  ["all levels", () => true],
  ["warnings and errors", (level) => WARNING.has(level)],
  ["errors", (level) => LOUD.has(level)],
];
export const MOST_SHOWN = 5_000;
const MOST_CHARACTERS = 4_000;

/** Return the log of a job so far, live. */
export function useLines(job: string): ReadonlySignal<readonly Line[]> {
  const lines = useSignal<readonly Line[]>([]);
  const state = useRef({ cursor: "", seen: 0, busy: false, wanted: false });

  async function look(): Promise<void> {
    if (state.current.busy) {
      state.current.wanted = true; // new lines may be missing from the answer that is being read
      return;
    }
    state.current.busy = true;
    state.current.wanted = false;
    try {
      // A page whose cursor is empty is the last one so far: it is read again from its own beginning.
      for (;;) {
        const { cursor, seen } = state.current;
        const page = await ask(
          client.GET("/api/jobs/{job_id}/logs", { params: { path: { job_id: job }, query: { limit: 500, cursor } } }),
        );
        const fresh = page.lines.slice(seen);
        if (fresh.length) lines.value = [...lines.value, ...fresh];
        if (!page.cursor) {
          state.current.seen = page.lines.length;
          break;
        }
        state.current.cursor = page.cursor;
        state.current.seen = 0;
      }
    } catch {
      // The page around it shows the error.
    } finally {
      state.current.busy = false;
    }
    if (state.current.wanted) await look();
  }

  useLayoutEffect(() => {
    const release = holdPage();
    onceKnown(() => void look().finally(release));
    return release;
  }, []);
  useNews((entry) => entry.id.startsWith(job), () => void look());
  return lines;
}

export function Log({ job }: { job: string }) {
  const lines = useLines(job);
  const wanted = useSignal("");
  const level = useSignal(0);
  const wrap = useSignal(true);
  const follow = useSignal(true);
  const box = useRef<HTMLOListElement>(null);
  useEffect(() => {
    if (follow.value && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines.value.length]);

  const shown = useComputed(() => {
    const text = wanted.value.toLowerCase();
    return lines.value
      .filter((line) => LEVELS[level.value]?.[1](line.level) && (!text || line.text.toLowerCase().includes(text)))
      .slice(-MOST_SHOWN);
  });

  function jump(): void {
    follow.value = false;
    box.current?.querySelector("[data-loud]")?.scrollIntoView({ block: "center" });
  }

  function download(): void {
    const text = lines.value.map((line) => `${line.at} ${line.level} ${line.text}`).join("\n");
    const url = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
    const link = Object.assign(document.createElement("a"), { href: url, download: `${job}.log` });
    link.click();
    URL.revokeObjectURL(url);
  }

  if (!lines.value.length) {
    return (
      <Panel title="Log">
        <Empty>Nothing was written.</Empty>
      </Panel>
    );
  }
  return (
    <Panel title="Log">
      <div class="head">
        <label class="hidden-text" for="log-search">
          Search the log
        </label>
        <input
          id="log-search"
          class="grows"
          placeholder="Search"
          value={wanted.value}
          onInput={(event) => {
            wanted.value = event.currentTarget.value;
          }}
        />
        <label class="hidden-text" for="log-level">
          Level
        </label>
        <select
          id="log-level"
          value={level.value}
          onChange={(event) => {
            level.value = Number(event.currentTarget.value);
          }}
        >
          {LEVELS.map(([name], place) => (
            <option key={name} value={place}>
              {name}
            </option>
          ))}
        </select>
        <Toggle name="Wrap" on={wrap} />
        <Toggle name="Follow" on={follow} />
        <button type="button" onClick={jump}>
          First error
        </button>
        <button type="button" onClick={download}>
          Download
        </button>
      </div>
      <ol ref={box} class={`log mono ${wrap.value ? "" : "unwrapped"}`} tabIndex={0} aria-label="Lines of the log">
        {shown.value.map((line) => (
          <LogLine key={keyOf(line)} line={line} />
        ))}
      </ol>
    </Panel>
  );
}

/** Return what tells a line from all others of its job. */
export function keyOf(line: Line): string {
  return `${line.shard}.${line.attempt}.${line.offset ?? 0}.${line.at}.${line.level}`;
}

/** One line in its colours; loud ones can be jumped to. */
export function LogLine({ line }: { line: Line }) {
  return (
    <li class={`level-${line.level}`} data-loud={LOUD.has(line.level) ? "" : undefined}>
      <time dateTime={line.at}>{clock(line.at)}</time> <span dir="auto">{ansi(line.text.slice(0, MOST_CHARACTERS))}</span>
      {line.text.length > MOST_CHARACTERS && (
        <span class="quiet"> … {line.text.length - MOST_CHARACTERS} more characters, in the download</span>
      )}
    </li>
  );
}

function Toggle({ name, on }: { name: string; on: { value: boolean } }) {
  return (
    <button
      type="button"
      aria-pressed={on.value}
      onClick={() => {
        on.value = !on.value;
      }}
    >
      {name}
    </button>
  );
}
