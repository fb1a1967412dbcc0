/** Jobs: one box with the filter grammar of the command line and the API, and a list that stays where it is. */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { Job } from "../api/client";
import { JOBS, type Verb } from "../lib/acted_on";
import { begin, isBusy } from "../lib/bulk";
import { useJobs } from "../lib/jobs";
import { hasEnded, machines } from "../lib/machines";
import { go, query } from "../lib/router";
import { may } from "../lib/session";
import { forget, own, save, USUAL } from "../lib/views";
import { ActOnAll, Progress } from "../ui/bulk";
import { ChooseColumns, chosen, type Column, columnsOf } from "../ui/columns";
import { FilterBox } from "../ui/filter";
import { palette } from "../ui/keys";
import { Empty, Head, Refusal, State, Took, When } from "../ui/parts";
import { NewRows } from "../ui/new_rows";
import { tell } from "../ui/toasts";
import { useWindowed } from "../ui/windowed";

const ROW_PX = 40;
const WORDS = ["queue:default", "since:1h", "since:1d", "task:", "label:", "id:"];

/** Return the words that a filter may have; the names of the states come from the table. */
function words(): string[] {
  const states = machines.value.get("job")?.states ?? [];
  return [...states.map((state) => `state:${state.toLowerCase()}`), ...WORDS];
}

const COLUMNS = chosen<Job>("columns of jobs", [
  { name: "state", title: "State", class: "state", usual: true, show: (job) => <State machine="job" state={job.state} /> },
  { name: "task", title: "Task", class: "mono", usual: true, show: (job) => job.task },
  { name: "queue", title: "Queue", usual: true, show: (job) => job.queue },
  { name: "submitted", title: "Submitted", class: "when", usual: true, show: (job) => <When at={job.created_at} /> },
  { name: "started", title: "Started", class: "when", show: (job) => <When at={job.started_at} /> },
  { name: "ended", title: "Ended", class: "when", show: (job) => <When at={job.completed_at} /> },
  { name: "took", title: "Took", class: "number took", usual: true, show: (job) => <Took from={job.started_at} to={endOf(job)} /> },
  { name: "attempts", title: "Attempts", class: "number took", show: (job) => job.attempts?.length ?? 0 },
  { name: "runner", title: "Runner", class: "mono", show: (job) => job.attempts?.at(-1)?.lease?.runner_id ?? "" },
  { name: "priority", title: "Priority", class: "number took", show: (job) => job.priority ?? 0 },
  { name: "labels", title: "Labels", show: (job) => job.labels?.join(", ") ?? "" },
  { name: "description", title: "Description", class: "quiet", show: (job) => job.description ?? "" },
  { name: "what", title: "What happened", class: "quiet", usual: true, show: whatHappened, hint: whatHappened },
]);

function endOf(job: Job): string | null {
  return job.completed_at ?? (hasEnded("job", job.state) ? job.updated_at : null);
}

function whatHappened(job: Job): string {
  return job.failure?.error ?? job.cancel_reason ?? job.stop_reason ?? "";
}

export function Jobs() {
  const q = query.value.get("q") ?? "";
  return <List key={q} q={q} />;
}

function List({ q }: { q: string }) {
  const selected = useSignal<ReadonlySet<string>>(new Set());
  /** The job that keys are about; none until one is chosen by a key, so that none that slides in is meant. */
  const current = useSignal("");
  const list = useJobs(q, () => selected.value.size > 0 || current.value !== "");
  const body = useRef<HTMLTableSectionElement>(null);
  const { first, last } = useWindowed(body, list.jobs.value.length, ROW_PX, list.more);
  const jobs = list.jobs.value;
  const count = list.count.value;
  const columns = columnsOf(COLUMNS);

  function toggle(id: string): void {
    const next = new Set(selected.value);
    if (!next.delete(id)) next.add(id);
    selected.value = next;
  }

  async function actOn(ids: readonly string[], verb: Verb): Promise<void> {
    if (isBusy()) return tell("Another action is still going on.", true);
    selected.value = new Set();
    await begin(JOBS, verb, { ids }, ids.length);
    list.look();
  }

  const place = current.value ? jobs.findIndex((job) => job.id === current.value) : -1;
  const meant = jobs[Math.max(0, place)];
  useListKeys({
    move: (by) => {
      const next = place < 0 ? 0 : Math.max(0, Math.min(jobs.length - 1, place + by));
      current.value = jobs[next]?.id ?? "";
      scrollTo(body.current, next);
    },
    open: () => meant && go(`/jobs/${meant.id}`),
    select: () => {
      current.value = meant?.id ?? "";
      if (meant) toggle(meant.id);
    },
    act: (verb) => {
      if (selected.value.size) void actOn([...selected.value], verb);
      else if (place >= 0 && meant) void actOn([meant.id], verb);
      else tell("Choose a job first: j is the next one, k the one before it.");
    },
  });

  return (
    <>
      <NewRows of={list.newest} />
      <Head title="Jobs">
        {selected.value.size > 0 && <span class="quiet">{selected.value.size} selected</span>}
        {selected.value.size > 0 && may("POST /api/jobs/actions") && (
          <>
            <button type="button" class="danger" onClick={() => actOn([...selected.value], "cancel")}>
              Cancel
            </button>
            <button type="button" onClick={() => actOn([...selected.value], "retry")}>
              Retry
            </button>
          </>
        )}
        {selected.value.size === 0 && q && may("POST /api/jobs/actions") && <ActOnAll q={q} look={list.look} />}
      </Head>
      <FilterBox q={q} words={words()} hint="state:failed queue:default since:1h" />
      <div class="beside">
        <Views q={q} />
        <ChooseColumns of={COLUMNS} />
      </div>
      <Refusal problem={list.problem.value} again={list.look} />
      <Progress look={list.look} />
      <section class="panel scroll" aria-label="List of jobs">
        <table class="rows" aria-rowcount={count?.capped ? -1 : (count?.number ?? jobs.length)}>
          <caption class="hidden-text">Jobs, newest first</caption>
          <thead>
            <tr>
              <th class="check">
                <span class="hidden-text">Select</span>
              </th>
              <th class="id">Id</th>
              {columns.map((column) => (
                <th key={column.name} class={column.class?.replace("mono", "")}>
                  {column.title}
                </th>
              ))}
            </tr>
          </thead>
          <tbody ref={body}>
            {first > 0 && <Space rows={first} wide={columns.length + 2} />}
            {jobs.slice(first, last).map((job, number) => (
              <Row
                key={job.id}
                job={job}
                columns={columns}
                place={first + number}
                current={job.id === current.value}
                selected={selected.value.has(job.id)}
                toggle={toggle}
              />
            ))}
            {last < jobs.length && <Space rows={jobs.length - last} wide={columns.length + 2} />}
          </tbody>
        </table>
        {list.loaded.value && list.unseen.value && (
          <Empty>
            {jobs.length ? "Older jobs have not been looked at yet." : "None of the newest jobs matches; older ones have not been looked at yet."}{" "}
            <button type="button" onClick={list.more}>
              Look further
            </button>
          </Empty>
        )}
        {list.loaded.value && jobs.length === 0 && !list.unseen.value && (
          <Empty>
            {q ? "No job matches this filter." : "No jobs yet."} Submit one with <code>interlock submit shop.py:greet</code>.
          </Empty>
        )}
        {jobs.length > 0 && count && (
          <p class="quiet">
            {jobs.length} shown of {count.number}
            {count.capped ? " or more" : ""}.
          </p>
        )}
      </section>
    </>
  );
}

/** Saved filters, each a link that can be sent to others. */
function Views({ q }: { q: string }) {
  const known = [...USUAL, ...own.value].some((view) => view.q === q);
  function keep(): void {
    const name = prompt("Name of this view", q);
    if (name) save(name, q);
  }
  return (
    <nav class="views" aria-label="Saved views">
      {[...USUAL, ...own.value].map((view) => (
        <a
          key={view.name}
          href={view.q ? `/jobs?q=${encodeURIComponent(view.q)}` : "/jobs"}
          aria-current={view.q === q ? "true" : undefined}
        >
          {view.name}
        </a>
      ))}
      {!known && (
        <button type="button" class="plain" onClick={keep}>
          Save this view
        </button>
      )}
      {own.value
        .filter((view) => view.q === q)
        .map((view) => (
          <button key={view.name} type="button" class="plain" onClick={() => forget(view.name)}>
            Forget this view
          </button>
        ))}
    </nav>
  );
}

function Space({ rows, wide }: { rows: number; wide: number }) {
  return (
    <tr aria-hidden="true" class="space">
      <td colSpan={wide} style={{ height: `${rows * ROW_PX}px` }} />
    </tr>
  );
}

interface RowProps {
  readonly job: Job;
  readonly columns: readonly Column<Job>[];
  readonly place: number;
  readonly current: boolean;
  readonly selected: boolean;
  readonly toggle: (id: string) => void;
}

function Row({ job, columns, place, current, selected, toggle }: RowProps) {
  return (
    <tr aria-selected={selected} aria-rowindex={place + 2} class={current ? "current" : ""}>
      <td class="check">
        <input type="checkbox" checked={selected} onChange={() => toggle(job.id)} aria-label={`Select ${job.id}`} />
      </td>
      <td class="id">
        <a class="mono" href={`/jobs/${encodeURIComponent(job.id)}`}>
          {job.id}
        </a>
      </td>
      {columns.map((column) => (
        <td key={column.name} class={column.class} title={column.hint?.(job)}>
          {column.show(job)}
        </td>
      ))}
    </tr>
  );
}

interface ListKeys {
  readonly move: (by: number) => void;
  readonly open: () => void;
  readonly select: () => void;
  readonly act: (verb: Verb) => void;
}

/** `j` and `k` move, `x` selects, Enter opens, `c` cancels and `r` retries. */
function useListKeys(keys: ListKeys): void {
  const latest = useRef(keys);
  latest.current = keys;
  useEffect(() => {
    let before = "";
    function pressed(event: KeyboardEvent): void {
      const target = event.target as HTMLElement;
      const first = before;
      before = event.key;
      if (event.metaKey || event.ctrlKey || event.altKey || first === "g" || palette.value) return;
      if (target.matches("input:not([type=checkbox]), textarea, select, dialog *")) return;
      if (event.key === "j") latest.current.move(1);
      else if (event.key === "k") latest.current.move(-1);
      else if (event.key === "x") latest.current.select();
      else if (event.key === "c") latest.current.act("cancel");
      else if (event.key === "r") latest.current.act("retry");
      else if (event.key === "Enter" && !target.matches("a, button, input")) latest.current.open();
    }
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

function scrollTo(body: HTMLElement | null, row: number): void {
  if (!body) return;
  const top = body.getBoundingClientRect().top + scrollY + row * ROW_PX;
  if (top < scrollY + 80) window.scrollTo(0, top - 80);
  else if (top + ROW_PX > scrollY + innerHeight - 40) window.scrollTo(0, top - innerHeight + ROW_PX + 40);
}
