/** The journal as it grows: what happened, to what, by whom and why. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ask, client, type Entry } from "../api/client";
import { filterOf, wants, type Filter } from "../lib/journal";
import { useLoaded } from "../lib/loading";
import { machines, tableOf } from "../lib/machines";
import { useNewest } from "../lib/newest";
import { pageOf, recordPage } from "../lib/records";
import { go, query } from "../lib/router";
import { clock, exact } from "../lib/time";
import { useEntries, useNews } from "../live/live";
import { More } from "../ui/more";
import { NewRows } from "../ui/new_rows";
import { Empty, Head, Refusal, State } from "../ui/parts";

const MOST = 300;
/** How many rows are drawn at first: each has some ten links and chips. */
const FIRST = 100;

export function Journal() {
  const filter = filterOf(query.value);
  const said = new URLSearchParams(filter).toString();
  const { data, problem, look } = useLoaded(`journal ${said}`, (signal) =>
    ask(client.GET("/api/journal", { params: { query: { ...filter, newest: true, limit: MOST } }, signal })),
  );
  const heard = useSignal<readonly Entry[]>([]);
  useEffect(() => {
    heard.value = [];
  }, [said]);
  useEntries((entries) => {
    const wanted = entries.filter((entry) => wants(filter, entry));
    if (wanted.length) heard.value = [...[...wanted].reverse(), ...heard.value].slice(0, MOST);
  });
  useNews(() => false, look); // only where something was missed: without a stream, and after a gap in it
  const known = new Set(heard.value.map((entry) => entry.cursor));
  const earlier = (data.value?.entries ?? []).filter((entry) => !known.has(entry.cursor));
  const newest = useNewest(`journal ${said}`, [...heard.value, ...earlier].slice(0, MOST), (entry) => entry.cursor);
  const drawn = useSignal(FIRST);
  const shown = newest.rows.slice(0, drawn.value);
  return (
    <>
      <NewRows of={newest} />
      <Head title="Journal">
        {filter.kind && filter.id && (
          <>
            <a class="button" href={pageOf(filter.kind, filter.id)}>
              The page of this {filter.kind}
            </a>
            <a class="button" href={recordPage(filter.kind, filter.id)}>
              Compare its versions
            </a>
          </>
        )}
      </Head>
      <Filters key={said} filter={filter} />
      <Refusal problem={problem.value} again={look} />
      <section class="panel scroll" aria-label="Entries of the journal">
        <table class="story">
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
            {shown.map((entry) => (
              <Line key={entry.cursor} entry={entry} />
            ))}
          </tbody>
        </table>
        {shown.length === 0 && data.value && <Empty>{said ? "None of the latest entries fits." : "Nothing has happened yet."}</Empty>}
        <More of={{ cursor: newest.rows.length > shown.length ? "more" : "", more: async () => void (drawn.value = MOST) }} />
        {data.value?.gap && (
          <p class="quiet">
            Older entries are in the store: <code>GET /api/journal</code> reads all of them. The story of one record is whole.
          </p>
        )}
      </section>
    </>
  );
}

function Line({ entry }: { entry: Entry }) {
  return (
    <tr>
      <td class="nowrap">
        <time dateTime={entry.at} title={exact(entry.at)}>
          {clock(entry.at)}
        </time>
      </td>
      <td class="nowrap">
        <a href={`/journal?${new URLSearchParams({ kind: entry.kind })}`}>{entry.kind}</a>{" "}
        <a class="mono" href={pageOf(entry.kind, entry.id)}>
          {entry.id}
        </a>{" "}
        <a
          class="quiet"
          href={`/journal?${new URLSearchParams({ kind: entry.kind, id: entry.id })}`}
          aria-label={`The story of ${entry.id}`}
        >
          story
        </a>
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
      <td>{entry.actor && <a href={`/journal?${new URLSearchParams({ actor: entry.actor })}`}>{entry.actor}</a>}</td>
      <td class="quiet">{entry.reason ?? ""}</td>
    </tr>
  );
}

/** One field for each word; the choice is in the address. */
function Filters({ filter }: { filter: Filter }) {
  const kinds = [...machines.value.values()].filter((one) => one.recorded !== false).map((one) => one.name);
  const table = filter.kind && machines.value.has(filter.kind) ? tableOf(filter.kind) : undefined;
  const states = table ? table.states.map((state) => state.name) : [...machines.value.values()].flatMap((one) => one.states);
  function chosen(form: HTMLFormElement): void {
    const words = new URLSearchParams();
    for (const [word, value] of new FormData(form)) if (String(value).trim()) words.set(word, String(value).trim());
    if (!words.has("kind")) words.delete("id"); // an id is one of a kind
    const said = words.toString();
    go(said ? `/journal?${said}` : "/journal");
  }
  return (
    <form
      class="filters"
      role="search"
      aria-label="Filter"
      onSubmit={(event) => {
        event.preventDefault();
        chosen(event.currentTarget);
      }}
    >
      <label>
        Kind
        <select name="kind" defaultValue={filter.kind ?? ""} value={filter.kind ?? ""} onChange={(event) => event.currentTarget.form?.requestSubmit()}>
          <option value="">all</option>
          {kinds.map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </label>
      {filter.kind && <Word word="id" title="Id" filter={filter} />}
      <Word word="state" title="State" filter={filter} words={[...new Set(states)].sort()} />
      <Word word="trigger" title="Trigger" filter={filter} words={table?.events?.map((event) => event.name) ?? []} />
      <Word word="actor" title="Actor" filter={filter} />
      <button type="submit">Filter</button>
      {Object.keys(filter).length > 0 && (
        <a class="button" href="/journal">
          Clear
        </a>
      )}
    </form>
  );
}

interface WordProps {
  readonly word: keyof Filter;
  readonly title: string;
  readonly filter: Filter;
  readonly words?: readonly string[];
}

function Word({ word, title, filter, words = [] }: WordProps) {
  return (
    <label>
      {title}
      <input
        name={word}
        class="mono"
        defaultValue={filter[word] ?? ""}
        list={words.length ? `words-${word}` : undefined}
        autoComplete="off"
        spellcheck={false}
      />
      {words.length > 0 && (
        <datalist id={`words-${word}`}>
          {words.map((each) => (
            <option key={each} value={each} />
          ))}
        </datalist>
      )}
    </label>
  );
}
