/** Jobs: one box with the filter grammar of the command line and the API, and a list that stays where it is. */
import { useSignal } from "@preact/signals";
import { useCallback, useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { ask, client, type Job, Problem, requestId } from "../api/client";
import { holdPage } from "../lib/loading";
import { hasEnded } from "../lib/machines";
import { go, query } from "../lib/router";
import { may } from "../lib/session";
import { forget, own, save, USUAL } from "../lib/views";
import { useEntries, useNews } from "../live/live";
import { FilterBox } from "../ui/filter";
import { Empty, Head, Refusal, State, Took, When } from "../ui/parts";
import { act, tell } from "../ui/toasts";
import { useWindowed } from "../ui/windowed";

const PAGE = 100;
const MOST_IDS = 100;
const ROW_PX = 40;
const WORDS = ["state:failed", "queue:default", "since:1h", "state:running", "-state:completed", "task:", "label:"];

type Verb = "cancel" | "retry";

export function Jobs() {
  const q = query.value.get("q") ?? "";
  return <List key={q} q={q} />;
}

function List({ q }: { q: string }) {
  const list = useJobs(q);
  const selected = useSignal<ReadonlySet<string>>(new Set());
  const cursor = useSignal(0);
  const body = useRef<HTMLTableSectionElement>(null);
  const { first, last } = useWindowed(body, list.jobs.value.length, ROW_PX, list.more);
  const jobs = list.jobs.value;
  const count = list.count.value;

  function toggle(id: string): void {
    const next = new Set(selected.value);
    if (!next.delete(id)) next.add(id);
    selected.value = next;
  }

  async function actOnSelected(action: Verb): Promise<void> {
    if (await actOn(`id:${[...selected.value].join(",")}`, action, selected.value.size)) selected.value = new Set();
    list.look();
  }

  useListKeys({
    move: (by) => {
      cursor.value = Math.max(0, Math.min(jobs.length - 1, cursor.value + by));
      scrollTo(body.current, cursor.value);
    },
    open: () => jobs[cursor.value] && go(`/jobs/${jobs[cursor.value]?.id}`),
    select: () => jobs[cursor.value] && toggle(jobs[cursor.value]?.id ?? ""),
    act: (verb) => {
      const one = jobs[cursor.value];
      if (selected.value.size) void actOnSelected(verb);
      else if (one) void actOn(`id:${one.id}`, verb, 1).then(list.look);
    },
  });

  return (
    <>
      <Head title="Jobs">
        {list.fresh.value > 0 && (
          <button type="button" onClick={list.showFresh}>
            Show {list.fresh.value === PAGE ? `${PAGE}+` : list.fresh.value} new
          </button>
        )}
        {selected.value.size > 0 && <span class="quiet">{selected.value.size} selected</span>}
        {selected.value.size > 0 && may("POST /api/jobs/actions") && (
          <>
            <button type="button" class="danger" onClick={() => actOnSelected("cancel")}>
              Cancel
            </button>
            <button type="button" onClick={() => actOnSelected("retry")}>
              Retry
            </button>
          </>
        )}
        {selected.value.size === 0 && q && may("POST /api/jobs/actions") && <ActOnAll q={q} look={list.look} />}
      </Head>
      <FilterBox q={q} words={WORDS} />
      <Views q={q} />
      <Refusal problem={list.problem.value} />
      <section class="panel scroll" aria-label="List of jobs">
        <table class="rows" aria-rowcount={count?.capped ? -1 : (count?.number ?? jobs.length)}>
          <caption class="hidden-text">Jobs, newest first</caption>
          <thead>
            <tr>
              <th class="check">
                <span class="hidden-text">Select</span>
              </th>
              <th class="id">Id</th>
              <th class="state">State</th>
              <th>Task</th>
              <th>Queue</th>
              <th class="when">Submitted</th>
              <th class="number took">Took</th>
              <th>What happened</th>
            </tr>
          </thead>
          <tbody ref={body}>
            {first > 0 && <Space rows={first} />}
            {jobs.slice(first, last).map((job, place) => (
              <Row
                key={job.id}
                job={job}
                place={first + place}
                current={first + place === cursor.value}
                selected={selected.value.has(job.id)}
                toggle={toggle}
              />
            ))}
            {last < jobs.length && <Space rows={jobs.length - last} />}
          </tbody>
        </table>
        {list.loaded.value && jobs.length === 0 && (
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

function Space({ rows }: { rows: number }) {
  return (
    <tr aria-hidden="true" class="space">
      <td colSpan={8} style={{ height: `${rows * ROW_PX}px` }} />
    </tr>
  );
}

interface RowProps {
  readonly job: Job;
  readonly place: number;
  readonly current: boolean;
  readonly selected: boolean;
  readonly toggle: (id: string) => void;
}

function Row({ job, place, current, selected, toggle }: RowProps) {
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
      <td class="state">
        <State machine="job" state={job.state} />
      </td>
      <td class="mono">{job.task}</td>
      <td>{job.queue}</td>
      <td class="when">
        <When at={job.created_at} />
      </td>
      <td class="number took">
        <Took from={job.started_at} to={job.completed_at ?? (hasEnded("job", job.state) ? job.updated_at : null)} />
      </td>
      <td class="quiet" title={job.failure?.error ?? ""}>
        {job.failure?.error ?? job.stop_reason ?? ""}
      </td>
    </tr>
  );
}

/** The jobs of a filter: what is shown stays in its place, is renewed in place, and grows at its end. */
function useJobs(q: string) {
  const jobs = useSignal<readonly Job[]>([]);
  const count = useSignal<{ number: number; capped?: boolean } | undefined>(undefined);
  const problem = useSignal<Problem | undefined>(undefined);
  const loaded = useSignal(false);
  const fresh = useSignal(0);
  const state = useRef({
    cursor: "",
    busy: false,
    wishes: new Map<"begin" | "more" | "look", () => Promise<void>>(),
    changed: new Set<string>(),
  });

  const page = (more: { cursor?: string; limit?: number; q?: string }) =>
    ask(client.GET("/api/jobs", { params: { query: { q, limit: PAGE, ...more } } }));

  const alone = useCallback(async (name: "begin" | "more" | "look", work: () => Promise<void>): Promise<void> => {
    if (state.current.busy) {
      state.current.wishes.set(name, work); // each is done once more when this is done
      return;
    }
    state.current.busy = true;
    try {
      await work();
      problem.value = undefined;
    } catch (error) {
      problem.value = error instanceof Problem ? error : new Problem("unexpected", String(error));
    } finally {
      state.current.busy = false;
    }
    const [wish] = state.current.wishes;
    if (!wish) return;
    state.current.wishes.delete(wish[0]);
    await alone(...wish);
  }, []);

  const begin = useCallback(
    () =>
      alone("begin", async () => {
        const answer = await page({});
        jobs.value = answer.jobs;
        count.value = answer.count ?? undefined;
        state.current.cursor = answer.cursor;
        fresh.value = 0;
        loaded.value = true;
      }),
    [],
  );

  const more = useCallback(() => {
    if (!state.current.cursor || !loaded.value) return;
    void alone("more", async () => {
      if (!state.current.cursor) return;
      const answer = await page({ cursor: state.current.cursor });
      const known = new Set(jobs.value.map((job) => job.id));
      jobs.value = [...jobs.value, ...answer.jobs.filter((job) => !known.has(job.id))];
      state.current.cursor = answer.cursor;
    });
  }, []);

  const look = useCallback(() => {
    if (!loaded.value) return void begin();
    void alone("look", async () => {
      const shown = new Map(jobs.value.map((job) => [job.id, job]));
      const changed = [...state.current.changed].filter((id) => shown.has(id)).slice(0, MOST_IDS);
      state.current.changed.clear();
      const [top, renewed] = await Promise.all([
        page({}),
        changed.length ? page({ q: `id:${changed.join(",")}`, limit: MOST_IDS }) : undefined,
      ]);
      const latest = new Map([...top.jobs, ...(renewed?.jobs ?? [])].map((job) => [job.id, job]));
      if (jobs.value.length) jobs.value = jobs.value.map((job) => latest.get(job.id) ?? job);
      else jobs.value = top.jobs;
      const known = new Set(jobs.value.map((job) => job.id));
      fresh.value = top.jobs.filter((job) => !known.has(job.id)).length;
      count.value = top.count ?? undefined;
    });
  }, []);

  const showFresh = useCallback(() => {
    window.scrollTo(0, 0);
    void begin();
  }, []);

  useLayoutEffect(() => {
    const release = holdPage();
    void begin().finally(release);
    return release;
  }, []);
  useEntries((entries) => {
    for (const entry of entries) if (entry.kind === "job") state.current.changed.add(entry.id);
  });
  useNews((entry) => entry.kind === "job", look);
  return { jobs, count, problem, loaded, fresh, more, look, showFresh };
}

/** Do something with all jobs that match: how many first, then in batches with progress. */
function ActOnAll({ q, look }: { q: string; look: () => void }) {
  return (
    <>
      <button type="button" class="danger" onClick={() => actOn(q, "cancel").then(look)}>
        Cancel all that match
      </button>
      <button type="button" onClick={() => actOn(q, "retry").then(look)}>
        Retry all that match
      </button>
    </>
  );
}

const BATCH = 100;

/** Act on all jobs that a filter means, page by page, and tell how far it is. */
async function actOn(filter: string, action: Verb, known?: number): Promise<boolean> {
  if (known === undefined && !(await preview(filter, action))) return false;
  const verb = action === "cancel" ? "Cancel was requested for" : "Submitted again:";
  const base = requestId();
  const outcome = { done: 0, refused: 0, why: "" };
  const good = await act("", async () => {
    let cursor = "";
    // The pages are those of the list: jobs that are submitted meanwhile come before them and are not touched.
    for (let batch = 0; batch === 0 || cursor; batch++) {
      const page = await ask(client.GET("/api/jobs", { params: { query: { q: filter, limit: BATCH, cursor } } }));
      cursor = page.cursor;
      const ids = page.jobs.filter((job) => hasEnded("job", job.state) === (action === "retry")).map((job) => job.id);
      if (!ids.length) continue;
      const body = { filter: `id:${ids.join(",")}`, action, limit: ids.length, request_id: `${base}-${batch}` };
      const answer = await ask(client.POST("/api/jobs/actions", { body }));
      outcome.done += answer.done?.length ?? 0;
      outcome.refused += answer.refused?.length ?? 0;
      outcome.why ||= answer.refused?.[0]?.error ?? "";
      if (cursor) tell(`${verb} ${outcome.done} jobs so far …`);
    }
  });
  const { done, refused, why } = outcome;
  tell(`${verb} ${done} ${done === 1 ? "job" : "jobs"}.${refused ? ` ${refused} refused: ${why}` : ""}`, !good || refused > 0);
  return good;
}

async function preview(filter: string, action: Verb): Promise<boolean> {
  let sentence = "";
  const good = await act("", async () => {
    const body = { filter, action, dry_run: true, limit: 1_000 };
    const answer = await ask(client.POST("/api/jobs/actions", { body }));
    const number = answer.done?.length ?? 0;
    sentence = number
      ? `${action === "cancel" ? "Cancel" : "Submit again"} ${number}${answer.more ? " or more" : ""} jobs that match ${filter}?`
      : "";
    if (!number) tell("No job that matches can be acted on.");
  });
  return good && sentence !== "" && confirm(sentence);
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
      if (event.metaKey || event.ctrlKey || event.altKey || first === "g") return;
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
