/** The graph of a run: matrices folded, to be zoomed and moved by buttons, keys, wheel and pointer. */
import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { components } from "../api/client";
import { type Item, itemsOf, layersOf, linesTo, placesOf, timesOf } from "../lib/graph";
import { State, Tally, Took } from "./parts";
import "../styles/graph.css";

export type RunJob = components["schemas"]["RunJobView"];

const SIZES = { width: 228, gapX: 48, gapY: 16 };
const JOB = 50;
const HEAD = 38;
const TALLY = 21;
const EDGE = 2;
const VARIANT = 46;
const LEAST_ZOOM = 0.2;
const MOST_ZOOM = 2;
const LEAST_AT_FIRST = 0.8;
const STEP = 1.25;

interface Props {
  readonly jobs: readonly RunJob[];
  /** The name of the job that is looked at. */
  readonly chosen: string;
  readonly choose: (name: string) => void;
  /** Names of jobs that are known to be flaky. */
  readonly flaky: ReadonlySet<string>;
}

/** The jobs of a run, each to the right of its needs; those on the critical path are marked. */
export function Graph({ jobs, chosen, choose, flaky }: Props) {
  const unfolded = useSignal<ReadonlySet<string>>(new Set());
  const zoom = useSignal(1);
  const view = useRef<HTMLDivElement>(null);
  const items = itemsOf(jobs);
  const critical = timesOf(jobs).critical;
  const isOpen = (item: Item<RunJob>): boolean => unfolded.value.has(item.name);
  const heightOf = (item: Item<RunJob>): number =>
    item.jobs.length === 1 ? JOB : isOpen(item) ? HEAD + item.jobs.length * VARIANT : foldedHeight(item);
  const { places, width, height } = placesOf(layersOf(items), heightOf, SIZES);
  const matrices = items.filter((item) => item.jobs.length > 1);

  function toggle(name: string): void {
    const next = new Set(unfolded.value);
    if (!next.delete(name)) next.add(name);
    unfolded.value = next;
  }

  /** Change the scale; the middle of the picture stays there. */
  function scale(to: number): void {
    const box = view.current;
    const next = Math.min(MOST_ZOOM, Math.max(LEAST_ZOOM, to));
    if (!box || next === zoom.value) return;
    const [x, y] = [box.scrollLeft + box.clientWidth / 2, box.scrollTop + box.clientHeight / 2];
    const by = next / zoom.value;
    zoom.value = next;
    requestAnimationFrame(() => box.scrollTo(x * by - box.clientWidth / 2, y * by - box.clientHeight / 2));
  }

  function fitting(): number {
    const box = view.current;
    return box ? Math.min(1, box.clientWidth / (width + 4), box.clientHeight / (height + 4)) : 1;
  }

  useLayoutEffect(() => {
    const across = view.current ? view.current.clientWidth / (width + 4) : 1;
    zoom.value = Math.min(1, Math.max(LEAST_AT_FIRST, across));
  }, []);
  useZoomKeys((by) => scale(by ? zoom.value * by : fitting()));
  usePanning(view, (by) => scale(zoom.value * by));

  return (
    <>
      <div class="graph-tools" role="toolbar" aria-label="Graph">
        {matrices.length > 0 && (
          <button
            type="button"
            aria-pressed={matrices.every(isOpen)}
            onClick={() => {
              unfolded.value = new Set(matrices.every(isOpen) ? [] : matrices.map((item) => item.name));
            }}
          >
            Unfold all
          </button>
        )}
        <button type="button" title="Smaller (−)" aria-label="Zoom out" onClick={() => scale(zoom.value / STEP)}>
          −
        </button>
        <output class="number" aria-label="Zoom">
          {Math.round(zoom.value * 100)} %
        </output>
        <button type="button" title="Larger (+)" aria-label="Zoom in" onClick={() => scale(zoom.value * STEP)}>
          +
        </button>
        <button type="button" title="Show all of it (0)" onClick={() => scale(fitting())}>
          Fit
        </button>
      </div>
      <div ref={view} class="graph-view" role="group" aria-label="Graph of the jobs" tabIndex={0}>
        <div class="graph-room" style={{ width: `${width * zoom.value + EDGE}px`, height: `${height * zoom.value + EDGE}px` }}>
          <div
            class="graph"
            style={{ width: `${width}px`, height: `${height}px`, transform: `scale(${zoom.value})` }}
          >
            <Lines items={items} places={places} critical={critical} width={width} height={height} />
            {items.map((item) => {
              const place = places.get(item.name) ?? { x: 0, y: 0, height: JOB };
              const [first] = item.jobs;
              const at = { left: `${place.x}px`, top: `${place.y}px`, width: `${SIZES.width}px`, height: `${place.height}px` };
              const marked = item.jobs.some((job) => critical.has(job.name)) ? "critical" : "";
              if (item.jobs.length === 1 && first) {
                return (
                  <div key={item.name} class={`node ${marked}`} style={at}>
                    <JobButton job={first} label={first.name} {...{ chosen, choose, flaky }} />
                  </div>
                );
              }
              return (
                <div key={item.name} class={`node matrix ${marked}`} style={at}>
                  <Fold item={item} open={isOpen(item)} toggle={() => toggle(item.name)} flaky={flaky} />
                  {isOpen(item) && (
                    <ul aria-label={`Variants of ${item.name}`}>
                      {item.jobs.map((job) => (
                        <li key={job.name}>
                          <JobButton job={job} label={job.name.slice(item.name.length).trim()} {...{ chosen, choose, flaky }} />
                        </li>
                      ))}
                    </ul>
                  )}
                </div>
              );
            })}
          </div>
        </div>
      </div>
    </>
  );
}

/** A folded matrix has a line for every two states that its variants are in. */
function foldedHeight(item: Item<RunJob>): number {
  const states = new Set(item.jobs.map((job) => job.state)).size;
  return Math.max(JOB, HEAD + Math.ceil(states / 2) * TALLY);
}

interface FoldProps {
  readonly item: Item<RunJob>;
  readonly open: boolean;
  readonly toggle: () => void;
  readonly flaky: ReadonlySet<string>;
}

/** The head of a matrix; folded it says how its variants stand. */
function Fold({ item, open, toggle, flaky }: FoldProps) {
  const tally: Record<string, number> = {};
  for (const job of item.jobs) tally[job.state] = (tally[job.state] ?? 0) + 1;
  return (
    <button type="button" class="fold" aria-expanded={open} onClick={toggle}>
      <b>
        <span aria-hidden="true">{open ? "▾" : "▸"}</span> {item.name} <span class="quiet">× {item.jobs.length}</span>{" "}
        {!open && item.jobs.some((job) => flaky.has(job.name)) && <span class="chip waiting">flaky</span>}
      </b>
      {!open && (
        <span class="chips">
          <Tally tally={tally} />
        </span>
      )}
    </button>
  );
}

interface JobProps extends Omit<Props, "jobs"> {
  readonly job: RunJob;
  readonly label: string;
}

function JobButton({ job, label, chosen, choose, flaky }: JobProps) {
  return (
    <button
      type="button"
      class="job"
      aria-pressed={chosen === job.name}
      title={[job.name, job.why, job.reason, job.failure?.error].filter(Boolean).join(" · ")}
      onClick={() => choose(job.name)}
    >
      <b>{label}</b>
      <span>
        <State machine="job" state={job.state} /> {job.started_at && <Took from={job.started_at} to={job.completed_at} />}
        {flaky.has(job.name) && <span class="chip waiting">flaky</span>}
        {job.required === false && <span class="quiet"> optional</span>}
      </span>
    </button>
  );
}

interface LinesProps {
  readonly items: readonly Item<RunJob>[];
  readonly places: ReturnType<typeof placesOf>["places"];
  readonly critical: ReadonlySet<string>;
  readonly width: number;
  readonly height: number;
}

function Lines({ items, places, critical, width, height }: LinesProps) {
  const known = new Map(items.map((item) => [item.name, item]));
  const isCritical = (name: string): boolean => known.get(name)?.jobs.some((job) => critical.has(job.name)) ?? false;
  return (
    <svg width={width} height={height} aria-hidden="true">
      {items.flatMap((item) =>
        linesTo(item, items).map((need) => {
          const [from, to] = [places.get(need), places.get(item.name)];
          if (!from || !to) return null;
          const [x1, y1, x2, y2] = [from.x + SIZES.width, middleOf(from), to.x, middleOf(to)];
          const half = (x1 + x2) / 2;
          return (
            <path
              key={`${need} ${item.name}`}
              class={isCritical(item.name) && isCritical(need) ? "edge critical" : "edge"}
              d={`M${x1} ${y1} C${half} ${y1} ${half} ${y2} ${x2} ${y2}`}
            />
          );
        }),
      )}
    </svg>
  );
}

/** Lines meet an item at its head, so that they stay where they are when it is unfolded. */
function middleOf(place: { readonly y: number; readonly height: number }): number {
  return place.y + Math.min(place.height, JOB) / 2;
}

/** `+` and `-` change how large the graph is, `0` shows all of it. */
function useZoomKeys(zoom: (by: number) => void): void {
  const latest = useRef(zoom);
  latest.current = zoom;
  useEffect(() => {
    function pressed(event: KeyboardEvent): void {
      if (event.metaKey || event.ctrlKey || event.altKey) return;
      if (event.target instanceof HTMLElement && event.target.closest("input, textarea, select, dialog")) return;
      const by = { "+": STEP, "=": STEP, "-": 1 / STEP, "0": 0 }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      latest.current(by);
    }
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

/** Move the graph with the mouse, and zoom it with the wheel while Ctrl is held, as touchpads do to pinch. */
function usePanning(view: { readonly current: HTMLDivElement | null }, zoom: (by: number) => void): void {
  const latest = useRef(zoom);
  latest.current = zoom;
  useEffect(() => {
    const box = view.current;
    if (!box) return;
    const held: { at: { x: number; y: number } | undefined } = { at: undefined };
    function down(event: PointerEvent): void {
      if (event.pointerType !== "mouse" || event.button || (event.target as Element).closest("button")) return;
      held.at = { x: event.clientX, y: event.clientY };
      box?.setPointerCapture(event.pointerId);
    }
    function move(event: PointerEvent): void {
      if (!held.at || !box) return;
      box.scrollBy(held.at.x - event.clientX, held.at.y - event.clientY);
      held.at = { x: event.clientX, y: event.clientY };
    }
    function up(): void {
      held.at = undefined;
    }
    function wheel(event: WheelEvent): void {
      if (!event.ctrlKey) return;
      event.preventDefault();
      latest.current(Math.exp(-event.deltaY / 300));
    }
    const stop = new AbortController();
    const { signal } = stop;
    box.addEventListener("pointerdown", down, { signal });
    box.addEventListener("pointermove", move, { signal });
    box.addEventListener("pointerup", up, { signal });
    box.addEventListener("pointercancel", up, { signal });
    box.addEventListener("wheel", wheel, { signal, passive: false });
    return () => stop.abort();
  }, []);
}

